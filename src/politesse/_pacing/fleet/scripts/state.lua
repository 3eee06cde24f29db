-- What all scripts about a host begin with: read the key of the host, and check what it holds.
--
-- All times and durations are whole microseconds. Times are those of this server. The fields of the hash:
--
--   format        the version of these fields
--   seen          when the key was written
--   before        when the last request ended; or when it started, if several may run at once
--   late          how much later than `before` that start may have been
--   by            the id of the owner of that request, if it reported the end itself
--   lease:TICKET  a granted start that has not ended: when its lease ends, its start, and how late it may be
--   url:TICKET    its URL
--   closed        until when the host is closed
--   why           the reason why it is closed
--   version       when the host was closed last
--   backoff       the backoff of pages, after answers that mean BUSY (429, 502, 503, 504); see demand.py
--   fetch         the backoff of robots.txt, after answers of 429 and 503
--   refusal       the backoff after answers that mean REFUSED
--   longest       the longest interval of a request
--   pace          the interval that the answers of the host ask for
--   claim         the owner that has waited for the longest time: since when, and until when it goes first
--   lag           how long the last granted start was waited for
--
-- A field that would be 0 or empty is left out. A ticket is OWNER.NUMBER. An owner is one process; its name ends with its
-- id, which has ID characters. Its numbers only grow.

if redis.replicate_commands then
    redis.replicate_commands() -- a Redis before 7 may be set up to refuse writes after TIME; this call permits them
end

local key = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local KEPT = 600 * 1000000 -- how long the key is kept after a request: a later robots.txt may state a long interval
local MOST = 2 ^ 53 -- whole numbers up to MOST are exact: microseconds since 1970, until the year 2255
local DAY = 86400 * 1000000
local LONGEST = 100 * 366 * DAY -- the longest duration; the time at its end is also exact
local AHEAD = 3 * DAY -- starts, closures and ends of leases are at most a day or two ahead; later times are nonsense
local HOUR = 3600 * 1000 -- in milliseconds
local YEAR = 366 * DAY -- if the clock seems to have been set back by more than a year, `seen` is nonsense
local ID = 12
local MOST_URL = 500 -- the bytes of a URL that are kept, to name the requests under way

local NUMBERS = { -- true for a time that may not be far ahead
    seen = false, before = true, late = false, closed = true, version = true, backoff = false, fetch = false,
    refusal = false, longest = false, pace = false, lag = false,
}

local fields, leases, changed, in_flight = {}, {}, {}, 0 -- in ``fields`` the NUMBERS are numbers

local function text(number)
    return string.format('%.0f', number)
end

-- Returns a whole number of 0 or more; nil for other texts that `tonumber` reads, such as `nan`, `inf` or `0x1f`.
local function whole(digits)
    local value = digits and string.find(digits, '^%d+$') and tonumber(digits)
    return value and value <= MOST and value or nil
end

-- Returns the duration in an argument, at most LONGEST.
local function duration(argument)
    return math.min(tonumber(argument), LONGEST)
end

local function get(name)
    return fields[name] or 0
end

local function set(name, value)
    if value == 0 or value == '' then
        value = nil
    end
    if value ~= fields[name] then
        fields[name] = value
        changed[name] = true
    end
end

-- Returns for how long the backoffs are remembered after the host opens.
local function backoff()
    return math.min(math.max(get('backoff'), get('fetch'), get('refusal')), DAY)
end

local function set_lease(ticket, lease)
    in_flight = in_flight + (leases[ticket] and 0 or 1)
    leases[ticket] = lease
    set('lease:' .. ticket, string.format('%.0f %.0f %.0f', lease.expiry, lease.start, lease.late))
end

local function set_url(ticket, url)
    set('url:' .. ticket, (string.gsub(string.sub(url, 1, MOST_URL), '%c', ' ')))
end

-- Drops a lease with which no request was made: its start leaves no trace.
local function take_back(ticket)
    if leases[ticket] then
        in_flight = in_flight - 1
        leases[ticket] = nil
        set('lease:' .. ticket, nil)
        set('url:' .. ticket, nil)
    end
end

-- Drops a lease whose request may have started. From now on its start counts as the last request.
local function drop(ticket)
    local lease = leases[ticket]
    if lease and lease.start >= get('before') then
        set('before', lease.start)
        set('late', lease.late)
        set('by', nil)
    end
    take_back(ticket)
end

-- Reads the numbers and the leases. Returns the name of a field that holds nonsense, because calculations with nonsense
-- might open the host; nil if all fields are valid.
local function read_fields()
    local limit = math.max(now, whole(fields.seen) or 0) + AHEAD
    for name, value in pairs(fields) do
        local is_time = NUMBERS[name]
        if is_time ~= nil then
            local number = whole(value)
            if not number or is_time and number > limit then
                return name
            end
            fields[name] = number
        elseif string.sub(name, 1, 6) == 'lease:' then
            local expiry, start, late = string.match(value, '^(%d+) (%d+) (%d+)$')
            local lease = {expiry = whole(expiry), start = whole(start), late = whole(late)}
            if not (lease.expiry and lease.start and lease.late) or math.max(lease.expiry, lease.start) > limit then
                return 'lease'
            end
            leases[string.sub(name, 7)] = lease
            in_flight = in_flight + 1
        end
    end
    if get('seen') > now + YEAR then
        return 'seen'
    end
    local closings = get('closed') > 0 and {['retry-after'] = true, ['rate-limit'] = true, backoff = true, refused = true}
    if closings and not closings[fields.why or ''] then
        return 'why'
    end
    if fields.claim and not string.find(fields.claim, '^%S+ %d+ %d+$') then
        return 'claim'
    end
end

-- If the clock has been set back since the key was written, treats the key as written just now. So each wait is as long
-- as it was when the key was written, and no request starts early.
local function follow_clock(ahead)
    set('before', math.min(get('before'), now))
    set('version', math.min(get('version'), now))
    set('closed', math.max(0, get('closed') - ahead))
    set('claim', nil)
    for ticket, lease in pairs(leases) do
        lease.start, lease.expiry = math.min(lease.start, now), lease.expiry - ahead
        set_lease(ticket, lease)
    end
end

-- Reads the key; returns the fault of its content, or nil.
local function read()
    local stored = redis.pcall('HGETALL', key)
    if stored.err then
        return stored.err
    end
    for i = 1, #stored, 2 do
        fields[stored[i]] = stored[i + 1]
    end
    if #stored > 0 and fields.format ~= '2' then
        return 'the key holds a hash that is not of politesse'
    end
    local nonsense = read_fields()
    if nonsense then
        return 'the key holds nonsense in its field ' .. nonsense
    end
    if get('seen') > now then
        follow_clock(get('seen') - now)
    end
    for ticket, lease in pairs(leases) do
        if lease.expiry <= now then
            drop(ticket)
        end
    end
end

-- Returns when a host with these leases was requested last, and how much later that start may have been.
local function last()
    local at, late = get('before'), get('late')
    for _, lease in pairs(leases) do
        if lease.start > at or lease.start == at and lease.late > late then
            at, late = lease.start, lease.late
        end
    end
    return at, late
end

local wrong = read()
