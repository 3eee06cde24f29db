-- The state of one politeness key. It is put before each of the other scripts, which share its functions.
--
-- The key is a hash. All times are microseconds of this server's clock, and nothing but this server's clock counts:
--
--   format        1; another hash under this key is foreign, and an error, as is one in which a field holds nonsense
--   seen          when the key was written last; a clock that shows less has been set back
--   last          when the host was asked last: the end of the last request, or the start where several may run at once
--   late          by how much that start may be later than `last` says
--   before        the `last` without the grants of requests that have not ended; `before_late` is its `late`
--   start:TICKET  the start that was granted to such a request, by how much it may be later, and 1 if nothing else has
--                 been under way, granted or counted since: `last` is the latest of these and of `before`. So each that
--                 is given back costs nothing, in whatever order they are
--   ended         the ticket whose end `before` is, if no other request has ended later, or may have; else there is none
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

if redis.replicate_commands then
    redis.replicate_commands() -- a Redis before 7 with lua-replicate-commands no would refuse to write after TIME
end

local key = KEYS[1]
local channels, counts_receivers = ARGV[1], ARGV[2] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local posted = now - tonumber(ARGV[3])
local KEPT = 600 * 1000000 -- a pace that is learnt later binds for so long after a request
local MOST = 2 ^ 53 -- the whole numbers up to it are exact: microseconds since 1970 until the year 2255
local LONGEST = 100 * 366 * 86400 * 1000000 -- a wait; the time at its end is exact, too
local AHEAD = 3 * 86400 * 1000000 -- no start and no lease ends later than that: both are within a day or two
local MOST_URL = 500 -- bytes of a URL that are kept, to name what is under way

local YEAR = 366 * 86400 * 1000000 -- a clock that has been set back by more is nonsense

local NUMBERS = {
    seen = true, last = true, late = true, before = true, before_late = true, closed = true, version = true,
    backoff = true, fetch = true, longest = true, pace = true,
}
local CLOSINGS = {['retry-after'] = true, ['rate-limit'] = true, backoff = true}

local state, leases, starts, in_flight = {}, {}, {}, 0
local queue, changed = {}, {}

local function text(number)
    return string.format('%.0f', number)
end

-- Returns a whole number, not below 0; nil for all else that Lua would take for one, as `nan`, `inf` or `0x1f`.
local function whole(digits)
    local value = digits and string.find(digits, '^%d+$') and tonumber(digits)
    return value and value <= MOST and value or nil
end

-- Returns an argument that is a duration.
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

local function set_lease(ticket, expiry, url)
    if not leases[ticket] then
        in_flight = in_flight + 1
    end
    leases[ticket] = expiry
    set('lease:' .. ticket, text(expiry) .. ' ' .. url)
end

local function set_start(ticket, at, late, is_alone)
    starts[ticket] = {at = at, late = late, is_alone = is_alone}
    set('start:' .. ticket, text(at) .. ' ' .. text(late) .. (is_alone and ' 1' or ' 0'))
end

-- Notes that something else than a ticket is, or was, at the host.
local function none_is_alone_but(ticket)
    for other, start in pairs(starts) do
        if other ~= ticket and start.is_alone then
            set_start(other, start.at, start.late, false)
        end
    end
end

local function forget_end()
    if state.ended then
        set('ended', nil)
    end
end

-- Forgets the start of a ticket; one that may have been used counts from now on as one of a request that has ended.
local function drop_start(ticket, may_be_used)
    local start = starts[ticket]
    if start then
        starts[ticket] = nil
        set('start:' .. ticket, nil)
        if may_be_used then
            forget_end()
        end
        if may_be_used and start.at >= get('before') then
            set('before', start.at)
            set('before_late', start.late)
        end
    end
end

-- Works out when the host was asked last.
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

local function drop_lease(ticket)
    if leases[ticket] then
        in_flight = in_flight - 1
        leases[ticket] = nil
        set('lease:' .. ticket, nil)
    end
end

-- Reads the numbers, the leases and the queue; returns the name of a field that holds nonsense. What Lua would compute
-- with that might open the host.
local function read_fields()
    local limit = math.max(now, whole(state.seen) or 0) + AHEAD
    for name, value in pairs(state) do
        if NUMBERS[name] then
            local number = whole(value)
            if not number or number > limit and (name == 'last' or name == 'before') then
                return name
            end
        elseif string.sub(name, 1, 6) == 'lease:' then
            local expiry = whole(string.match(value, '^(%d+) '))
            if not expiry or expiry > limit then
                return 'lease'
            end
            leases[string.sub(name, 7)] = expiry
            in_flight = in_flight + 1
        elseif string.sub(name, 1, 6) == 'start:' then
            local at, late, alone = string.match(value, '^(%d+) (%d+) ([01])$')
            local start = {at = whole(at), late = whole(late), is_alone = alone == '1'}
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
        local ticket, interval, slack, tolerance, most, lease, url =
            string.match(line, '^([^%s.]+%.%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
        local e = {
            ticket = ticket,
            interval = whole(interval),
            slack = whole(slack),
            tolerance = whole(tolerance),
            most = whole(most),
            lease = whole(lease),
            url = url,
        }
        if not (ticket and e.interval and e.slack and e.tolerance and e.most and e.lease) then
            return 'queue'
        end
        queue[#queue + 1] = e
    end
end

-- Takes what was written by a clock that has been set back since as if it had been written just now: what has to wait
-- waits for as long as it had to then, and nothing starts early.
local function follow_clock()
    local ahead = get('seen') - now
    if ahead <= 0 then
        return
    end
    for _, name in ipairs({'last', 'before', 'version'}) do
        set(name, math.min(get(name), now))
    end
    for ticket, start in pairs(starts) do
        set_start(ticket, math.min(start.at, now), start.late, false)
    end
    forget_end()
    set('closed', math.max(0, get('closed') - ahead))
    for ticket, expiry in pairs(leases) do
        set_lease(ticket, expiry - ahead, string.match(state['lease:' .. ticket], '^%d+ (.*)$'))
    end
end

-- Reads the key; returns what is wrong with it.
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
    for ticket, expiry in pairs(leases) do
        if expiry <= now then
            drop_start(ticket, true)
            drop_lease(ticket)
        end
    end
end

-- Says that the key is written now. It comes before all else that has an effect: a server that cannot write, as for want
-- of memory, refuses this one, and nothing has happened.
local function claim()
    redis.call('HSET', key, 'format', '1', 'seen', text(now))
end

-- Calls a command with so many words at a time as Lua can pass on, an even number.
local function in_parts(command, words)
    for i = 1, #words, 1000 do
        redis.call(command, key, unpack(words, i, math.min(i + 999, #words)))
    end
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
    local kept, gone = {}, {}
    for name in pairs(changed) do
        if state[name] then
            kept[#kept + 1] = name
            kept[#kept + 1] = state[name]
        else
            gone[#gone + 1] = name
        end
    end
    in_parts('HSET', kept)
    in_parts('HDEL', gone)
    local expiry = math.max(now + KEPT, now + 2 * get('longest'), get('closed') + math.max(get('backoff'), get('fetch')))
    for _, lease_expiry in pairs(leases) do
        expiry = math.max(expiry, lease_expiry)
    end
    redis.call('PEXPIRE', key, text(math.ceil(math.min(expiry - now, LONGEST) / 1000)))
end

-- Returns when a request may start, what binds that, and, where that is the end of a request and nothing else, which one
-- and how long after it. A closing that is not over is another thing: who counts from that end may start before it.
local function earliest(e)
    local last, late, start, bound = get('last'), get('late'), now, ''
    local ended, after = '', 0
    local interval, why = e.interval, 'interval'
    if get('pace') > interval then
        interval, why = get('pace'), 'adaptive'
    end
    if last > 0 and interval > 0 then
        local due = last + interval + math.max(e.slack, late)
        if due > start then
            start, bound = due, why
            if next(starts) == nil and get('closed') <= now then
                ended, after = state.ended or '', due - last
            end
        end
    end
    if get('closed') > start then
        start, bound = get('closed'), state.why
    end
    return start, bound, ended, after
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

local function answer(kind, e, wait, bound, url, ended, after)
    return {
        kind, e.ticket, text(now), text(wait), text(get('version')), bound, text(e.tolerance), text(get('backoff')),
        text(get('fetch')), url or '', ended or '', text(after or 0),
    }
end

-- Publishes to the process that owns a ticket; returns whether it is there.
local function publish(ticket, message)
    local owner = string.match(ticket, '^[^.]+')
    local receivers = redis.call('PUBLISH', channels .. owner, key .. '\n' .. table.concat(message, '\n'))
    return receivers > 0 or not counts_receivers
end

local function grant(e, start, bound, ended, after)
    none_is_alone_but(e.ticket)
    set_start(e.ticket, start, e.tolerance, in_flight == 0)
    recount()
    set_lease(e.ticket, start + e.lease, e.url)
    return answer('granted', e, start - now, bound, '', ended, after)
end

local function take_back(ticket)
    drop_start(ticket, false)
    recount()
    drop_lease(ticket)
end

-- Returns where in the queue a ticket was; nil if it was not there.
local function remove_from_queue(ticket)
    for place, waiting in ipairs(queue) do
        if waiting.ticket == ticket then
            table.remove(queue, place)
            return place
        end
    end
end

-- Grants what waits, in order, as long as there is room; returns the answer to the ticket of the caller, or nil.
local function serve(caller)
    local own
    while #queue > 0 and in_flight < queue[1].most do
        local e = table.remove(queue, 1)
        local start, bound, ended, after = earliest(e)
        local message
        if start - now > math.min(e.lease, e.patience or e.lease) then
            message = answer('wait', e, start - now, bound)
        else
            message = grant(e, start, bound, ended, after)
        end
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
