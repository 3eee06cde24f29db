-- The state of one paced host, address or domain. This file precedes each other script, and all share its functions.
--
-- The state is a hash under one key. All times and durations are in microseconds, by the clock of this server only:
--
--   format        1; a hash with another format, or with nonsense in a field, is an error
--   seen          when the key was written last; if the clock shows an earlier time, it was set back
--   last          when the host was requested last: the end of the request, or its start if several may run at once
--   late          how much later than `last` that start may be
--   before        as `last`, but only for requests that have ended; `before_late` is the `late` of `before`
--   start:TICKET  the granted start of a request that has not ended, and how late it may be. `last` is the latest of
--                 these starts and `before`. So a start that is given back leaves no trace
--   closed        until when the host is closed
--   why           the reason why it is closed
--   version       when the host was closed last; earlier grants are void
--   backoff       the backoff of pages, after answers that mean BUSY (429, 502, 503, 504); see demand.py
--   fetch         the backoff of robots.txt, after answers of 429 and 503
--   refusal       the backoff after answers that mean REFUSED
--   longest       the longest interval of a request
--   pace          the interval that the answers of the host ask for
--   lease:TICKET  until when a granted request counts as under way, its session, and its URL
--   queue         the requests that wait for the end of another request, one on each line, in the order of arrival
--
-- A ticket is OWNER.NUMBER. An owner is one process; messages about its tickets are published to its channel. A session
-- is one connection of an owner. After an owner has connected, it renews the leases of all its requests under way in
-- the new session. So a lease of an earlier session is dead: its request has ended, or its grant was never used.
--
-- All scripts have these arguments:
--
--   ARGV[1]  the start of the name of each channel
--   ARGV[2]  1 if PUBLISH returns the number of all receivers; in a cluster it does not
--   ARGV[3]  how long the call has waited to be sent, which is also the age of the events that it reports

if redis.replicate_commands then
    redis.replicate_commands() -- a Redis before 7 may be set up to refuse writes after TIME; this call permits them
end

local key = KEYS[1]
local channels, counts_receivers = ARGV[1], ARGV[2] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local posted = now - tonumber(ARGV[3])
local KEPT = 600 * 1000000 -- how long the key is kept after a request: a later robots.txt may state a long interval
local MOST = 2 ^ 53 -- whole numbers up to MOST are exact: microseconds since 1970, until the year 2255
local LONGEST = 100 * 366 * 86400 * 1000000 -- the longest duration; the time at its end is also exact
local AHEAD = 3 * 86400 * 1000000 -- starts and ends of leases are at most a day or two ahead; later times are nonsense
local MOST_URL = 500 -- the bytes of a URL that are kept, to name the requests under way

local DAY = 86400 * 1000000
local YEAR = 366 * 86400 * 1000000 -- if the clock seems to have been set back by more than a year, `seen` is nonsense

local NUMBERS = {
    seen = true, last = true, late = true, before = true, before_late = true, closed = true, version = true,
    backoff = true, fetch = true, refusal = true, longest = true, pace = true, lost = true,
}
-- The numbers of a request in the queue, in their order between the ticket and the URL.
local WAITING = {'interval', 'slack', 'tolerance', 'most', 'lease', 'session'}
local CLOSINGS = {['retry-after'] = true, ['rate-limit'] = true, backoff = true, refused = true}

local state, leases, starts, queue, changed = {}, {}, {}, {}, {}
local in_flight = 0 -- the number of leases

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

local function url_of(argument)
    return (string.gsub(string.sub(argument, 1, MOST_URL), '%c', ' '))
end

local function get(name)
    return tonumber(state[name] or '0')
end

local function set(name, value)
    state[name] = type(value) == 'number' and text(math.min(value, MOST)) or value
    changed[name] = true
end

-- Returns for how long the backoffs are remembered after the host opens.
local function backoff()
    return math.min(math.max(get('backoff'), get('fetch'), get('refusal')), DAY)
end

local function set_lease(ticket, expiry, session, url)
    if not leases[ticket] then
        in_flight = in_flight + 1
    end
    leases[ticket] = {expiry = expiry, session = session, url = url}
    set('lease:' .. ticket, text(expiry) .. ' ' .. text(session) .. ' ' .. url)
end

local function owner_of(ticket)
    return string.match(ticket, '^[^.]+')
end

local function set_start(ticket, at, late)
    starts[ticket] = {at = at, late = late}
    set('start:' .. ticket, text(at) .. ' ' .. text(late))
end

-- Calculates when the host was requested last.
local function recount()
    local last, late = get('before'), get('before_late')
    for _, start in pairs(starts) do
        if start.at > last or start.at == last and start.late > late then
            last, late = start.at, start.late
        end
    end
    set('last', last)
    set('late', late)
end

-- Drops the start and the lease of a ticket.
local function drop(ticket)
    if leases[ticket] then
        in_flight = in_flight - 1
        leases[ticket] = nil
        set('lease:' .. ticket, nil)
    end
    if starts[ticket] then
        starts[ticket] = nil
        set('start:' .. ticket, nil)
    end
end

-- Drops a ticket whose request may have started. From now on its start counts as the start of an ended request.
local function drop_used(ticket)
    local start = starts[ticket]
    if start and start.at >= get('before') then
        set('before', start.at)
        set('before_late', start.late)
    end
    drop(ticket)
end

-- Drops a ticket with which no request was made.
local function take_back(ticket)
    drop(ticket)
    recount()
end

-- Reads the numbers, the leases and the queue. Returns the name of a field that holds nonsense, because calculations
-- with nonsense might open the host; nil if all fields are valid.
local function read_fields()
    local limit = math.max(now, whole(state.seen) or 0) + AHEAD
    for name, value in pairs(state) do
        if NUMBERS[name] then
            local number = whole(value)
            if not number or number > limit and (name == 'last' or name == 'before') then
                return name
            end
        elseif string.sub(name, 1, 6) == 'lease:' then
            local expiry, session, url = string.match(value, '^(%d+) (%d+) (.*)$')
            local lease = {expiry = whole(expiry), session = whole(session), url = url}
            if not (lease.expiry and lease.session) or lease.expiry > limit then
                return 'lease'
            end
            leases[string.sub(name, 7)] = lease
            in_flight = in_flight + 1
        elseif string.sub(name, 1, 6) == 'start:' then
            local at, late = string.match(value, '^(%d+) (%d+)$')
            local start = {at = whole(at), late = whole(late)}
            if not (start.at and start.late) or start.at > limit then
                return 'start'
            end
            starts[string.sub(name, 7)] = start
        end
    end
    if get('seen') > now + YEAR then
        return 'seen'
    end
    if get('closed') > 0 and not CLOSINGS[state.why] then
        return 'why'
    end
    for line in string.gmatch(state.queue or '', '[^\n]+') do
        local words = {string.match(line, '^([^%s.]+%.%d+)' .. string.rep(' (%d+)', #WAITING) .. ' (.*)$')}
        local e = {ticket = words[1], url = words[#WAITING + 2]}
        for place, name in ipairs(WAITING) do
            e[name] = whole(words[place + 1])
            if not e[name] then
                return 'queue'
            end
        end
        queue[#queue + 1] = e
    end
end

-- If the clock has been set back since the key was written, treats the key as written just now. So each wait is as long
-- as it was when the key was written, and no request starts early.
local function follow_clock()
    local ahead = get('seen') - now
    if ahead <= 0 then
        return
    end
    for _, name in ipairs({'last', 'before', 'version'}) do
        set(name, math.min(get(name), now))
    end
    for ticket, start in pairs(starts) do
        set_start(ticket, math.min(start.at, now), start.late)
    end
    set('closed', math.max(0, get('closed') - ahead))
    for ticket, lease in pairs(leases) do
        set_lease(ticket, lease.expiry - ahead, lease.session, lease.url)
    end
end

-- Reads the key; returns the fault of its content, or nil.
local function read()
    local stored = redis.call('HGETALL', key)
    for i = 1, #stored, 2 do
        state[stored[i]] = stored[i + 1]
    end
    if #stored > 0 and state.format ~= '1' then
        return 'the key holds a hash that is not of politesse'
    end
    local nonsense = read_fields()
    if nonsense then
        return 'the key holds nonsense in its field ' .. nonsense
    end
    follow_clock()
    for ticket, lease in pairs(leases) do
        if lease.expiry <= now then
            drop_used(ticket)
        end
    end
end

-- Drops the leases of earlier sessions. `words` has owners, each followed by its session.
local function drop_dead(words)
    for owner, session in string.gmatch(words, '(%S+) (%d+)') do
        for ticket, lease in pairs(leases) do
            if owner_of(ticket) == owner and lease.session < tonumber(session) then
                drop_used(ticket)
            end
        end
    end
end

-- Records that the key is written now. This is the first write of a script. So if the server cannot write, for
-- example because its memory is full, it refuses this command, and the script ends before it has changed anything.
local function claim()
    redis.call('HSET', key, 'format', '1', 'seen', text(now))
end

-- Writes the changed fields, and sets the time at which the key expires.
local function write()
    local lines = {}
    for place, e in ipairs(queue) do
        local words = {e.ticket}
        for _, name in ipairs(WAITING) do
            words[#words + 1] = text(e[name])
        end
        lines[place] = table.concat(words, ' ') .. ' ' .. e.url
    end
    local line = #lines > 0 and table.concat(lines, '\n') or nil
    if line ~= state.queue then
        set('queue', line)
    end
    for name in pairs(changed) do
        if state[name] then
            redis.call('HSET', key, name, state[name])
        else
            redis.call('HDEL', key, name)
        end
    end
    local expiry = math.max(now + KEPT, now + 2 * get('longest'), get('closed') + backoff())
    for _, lease in pairs(leases) do
        expiry = math.max(expiry, lease.expiry)
    end
    redis.call('PEXPIRE', key, text(math.ceil(math.min(expiry - now, LONGEST) / 1000)))
end

-- Returns when a request may start, and the reason why it may not start earlier.
local function earliest(e)
    local last, late, start, bound = get('last'), get('late'), now, ''
    local interval, why = e.interval, 'interval'
    if get('pace') > interval then
        interval, why = get('pace'), 'adaptive'
    end
    if last > 0 and interval > 0 then
        local due = last + interval + math.max(e.slack, late)
        if due > start then
            start, bound = due, why
        end
    end
    if get('closed') > start then
        start, bound = get('closed'), state.why
    end
    return start, bound
end

-- Returns when the first lease ends, the URL of its request, and the owners and sessions of all leases.
local function holders()
    local first, url, words = math.huge, '', {}
    for ticket, lease in pairs(leases) do
        if lease.expiry < first then
            first, url = lease.expiry, lease.url
        end
        words[#words + 1] = owner_of(ticket) .. ' ' .. text(lease.session)
    end
    return first, url, table.concat(words, ' ')
end

local function answer(kind, e, wait, bound, url, words)
    return {
        kind, e.ticket, text(now), text(wait), text(get('version')), bound, text(e.tolerance), text(get('backoff')),
        text(get('fetch')), text(get('refusal')), url or '', words or '',
    }
end

-- Publishes a message to the process that owns a ticket; returns whether that process receives messages.
local function publish(ticket, message)
    local receivers = redis.call('PUBLISH', channels .. owner_of(ticket), key .. '\n' .. table.concat(message, '\n'))
    return receivers > 0 or not counts_receivers
end

local function grant(e, start, bound)
    set_start(e.ticket, start, e.tolerance)
    recount()
    set_lease(e.ticket, start + e.lease, e.session, e.url)
    return answer('granted', e, start - now, bound)
end

-- Removes a ticket from the queue; returns its former place, or nil if it was not in the queue.
local function remove_from_queue(ticket)
    for place, waiting in ipairs(queue) do
        if waiting.ticket == ticket then
            table.remove(queue, place)
            return place
        end
    end
end

-- Takes requests out of the queue, in order, as long as another request may be under way. Publishes the answer to each
-- request; returns the answer to the ticket of the caller, or nil.
local function serve(caller)
    local own
    while #queue > 0 and in_flight < queue[1].most do
        local e = table.remove(queue, 1)
        local start, bound = earliest(e)
        local is_near = start - now <= math.min(e.lease, e.patience or e.lease)
        local message = is_near and grant(e, start, bound) or answer('wait', e, start - now, bound)
        if e.ticket == caller then
            own = message
        elseif not publish(e.ticket, message) then
            take_back(e.ticket)
        end
    end
    return own
end

local wrong = read()
if wrong then
    return redis.error_reply('FOREIGN ' .. wrong)
end
