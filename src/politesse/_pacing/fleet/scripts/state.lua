-- The state of one politeness key. It is put before each of the other scripts, which share its functions.
--
-- The key is a hash. All times are microseconds of this server's clock, and nothing but this server's clock counts:
--
--   format        1; another hash under this key is foreign, and an error
--   last          when the host was asked last: the end of the last request, or the start where several may run at once
--   late          by how much that start may be later than `last` says
--   mark          the ticket whose grant set `last`; empty after the end of a request
--   before        the `last` and the `late` that giving that ticket back restores
--   closed, why   until when the host is closed, and by what
--   version       when it was closed last: a grant that is older than that is void
--   backoff       for how long the last refusal of a page would close it; `fetch` is the one of robots.txt
--   longest       the longest interval of a request
--   pace          the interval that the answers of the host ask for
--   lease:TICKET  until when a granted request counts as under way, and its URL
--   queue         the requests that wait for the end of another one, one a line, in the order in which they came
--
-- A ticket is OWNER.NUMBER. An owner is one process; what concerns its tickets is published to its channel.
--
-- ARGV[1] is what the name of a channel begins with. ARGV[2] is 1 if PUBLISH returns the number of all receivers, which
-- it does not in a cluster. ARGV[3] is for how long the call has waited to be sent: what it reports is as old as that.

local key = KEYS[1]
local channels, counts_receivers = ARGV[1], ARGV[2] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local posted = now - tonumber(ARGV[3])
local KEPT = 600 * 1000000 -- a pace that is learnt later binds for so long after a request

local state, leases, in_flight = {}, {}, 0
local queue, changed = {}, {}

local function text(number)
    return string.format('%.0f', number)
end

local function get(name)
    return tonumber(state[name] or '0')
end

local function set(name, value)
    state[name] = type(value) == 'number' and text(value) or value
    changed[name] = true
end

local function set_lease(ticket, expiry, url)
    if not leases[ticket] then
        in_flight = in_flight + 1
    end
    leases[ticket] = expiry
    set('lease:' .. ticket, text(expiry) .. ' ' .. url)
end

local function drop_lease(ticket)
    if leases[ticket] then
        in_flight = in_flight - 1
        leases[ticket] = nil
        set('lease:' .. ticket, nil)
    end
end

-- Reads the key; returns whether it is ours.
local function read()
    local stored = redis.call('HGETALL', key)
    for i = 1, #stored, 2 do
        state[stored[i]] = stored[i + 1]
    end
    if #stored > 0 and state.format ~= '1' then
        return false
    end
    local expired = {}
    for name, value in pairs(state) do
        local ticket = string.match(name, '^lease:(.+)$')
        if ticket then
            leases[ticket] = tonumber(string.match(value, '^%d+'))
            in_flight = in_flight + 1
            if leases[ticket] <= now then
                expired[#expired + 1] = ticket
            end
        end
    end
    for _, ticket in ipairs(expired) do
        drop_lease(ticket)
    end
    for line in string.gmatch(state.queue or '', '[^\n]+') do
        local ticket, interval, slack, tolerance, most, lease, url =
            string.match(line, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
        queue[#queue + 1] = {
            ticket = ticket,
            interval = tonumber(interval),
            slack = tonumber(slack),
            tolerance = tonumber(tolerance),
            most = tonumber(most),
            lease = tonumber(lease),
            url = url,
        }
    end
    return true
end

-- Writes what has changed, and when the key expires.
local function write()
    local lines = {}
    for place, e in ipairs(queue) do
        lines[place] = table.concat({
            e.ticket, text(e.interval), text(e.slack), text(e.tolerance), text(e.most), text(e.lease), e.url,
        }, ' ')
    end
    local line = #lines > 0 and table.concat(lines, '\n') or nil
    if line ~= state.queue then
        set('queue', line)
    end
    set('format', '1')
    for name in pairs(changed) do
        if state[name] then
            redis.call('HSET', key, name, state[name])
        else
            redis.call('HDEL', key, name)
        end
    end
    local expiry = math.max(now + KEPT, now + 2 * get('longest'), get('closed') + math.max(get('backoff'), get('fetch')))
    for _, lease_expiry in pairs(leases) do
        expiry = math.max(expiry, lease_expiry)
    end
    redis.call('PEXPIRE', key, text(math.ceil((expiry - now) / 1000)))
end

-- Returns when a request may start, and what binds that.
local function earliest(e)
    local last, late, start, bound = get('last'), get('late'), now, ''
    if state.mark == e.ticket then
        last, late = get('before'), get('before_late')
    end
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

local function holder()
    local first, url = math.huge, ''
    for ticket, expiry in pairs(leases) do
        if expiry < first then
            first, url = expiry, string.match(state['lease:' .. ticket], '^%d+ (.*)$')
        end
    end
    return first, url
end

local function answer(kind, e, wait, bound, url)
    return {
        kind, e.ticket, text(now), text(wait), text(get('version')), bound, text(e.tolerance), text(get('backoff')),
        text(get('fetch')), url or '',
    }
end

-- Publishes to the process that owns a ticket; returns whether it is there.
local function publish(ticket, message)
    local owner = string.match(ticket, '^[^.]+')
    local receivers = redis.call('PUBLISH', channels .. owner, key .. '\n' .. table.concat(message, '\n'))
    return receivers > 0 or not counts_receivers
end

local function grant(e, start, bound)
    if state.mark ~= e.ticket then
        set('before', get('last'))
        set('before_late', get('late'))
    end
    set('last', start)
    set('late', e.tolerance)
    set('mark', e.ticket)
    set_lease(e.ticket, start + e.lease, e.url)
    return answer('granted', e, start - now, bound)
end

local function take_back(ticket)
    if state.mark == ticket then
        set('last', get('before'))
        set('late', get('before_late'))
        set('mark', '')
    end
    drop_lease(ticket)
end

-- Grants what waits, in order, as long as there is room; returns the answer to the ticket of the caller, or nil.
local function serve(caller)
    local own
    while #queue > 0 and in_flight < queue[1].most do
        local e = table.remove(queue, 1)
        local start, bound = earliest(e)
        local message
        if start - now > e.lease then
            message = answer('wait', e, start - now, bound)
        else
            message = grant(e, start, bound)
        end
        if e.ticket == caller then
            own = message
        elseif not publish(e.ticket, message) then
            take_back(e.ticket)
        end
    end
    return own
end

if not read() then
    return redis.error_reply('FOREIGN the key holds a hash that is not of politesse')
end
