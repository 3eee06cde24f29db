-- One step of a process at a host: what its requests under way are, which have ended, until when the host is closed,
-- and the wish for the next start. Each part may be absent; a step without any only reports.
--
--   ARGV[1]  the owner
--   ARGV[2]  its highest number so far
--   ARGV[3]  the requests under way, one on each line: the number, how long ago it started, and the URL; their leases
--            are renewed
--   ARGV[4]  how long a renewed lease lasts from now on
--   ARGV[5]  the number of a granted start that was not used yet, or 0
--   ARGV[6]  what has ended, three words each: the number, how long ago, and `used`, `back` or `asked`. `asked` is a
--            request without a ticket, such as a fetch of robots.txt
--   ARGV[7]  1 if one request at a time may be under way, so that the interval counts from the end of a request
--   ARGV[8]  five words after an answer: the interval that the answers of the host ask for, the backoffs of pages, of
--            robots.txt and of refusals, and the time of the grant; or empty
--   ARGV[9]  how long the host is closed and why; or empty
--   ARGV[10] the time after which the script changes nothing, because its caller has given it up; 0 for never
--   ARGV[11] to ARGV[20] the wish, or none of these: the number, the interval, the slack that is added to it, how late
--            the request may start, how many may be under way at once, how long the lease lasts after the start, how
--            long the process has waited, how long a claim goes first, how far ahead a start is granted, and the URL
--
-- A grant that this owner has, and no longer names, was lost on its way: it is dropped at once. A script that comes
-- late drops nothing that is newer than itself, because the numbers of an owner only grow.
--
-- A key that holds something else than politesse has written is not touched. It expires after an hour.
--
-- The reply: the kind (`granted`, `wait` or `told`), the time, the wait, the bound, the backoffs, the URL of the request
-- that holds the host, and 1 if the start counts from an end that this owner has reported.

if wrong then -- the host is closed meanwhile, for an hour at most
    local left = redis.call('PTTL', key)
    if left < 0 or left > HOUR then
        redis.call('PEXPIRE', key, HOUR)
    end
    return redis.error_reply('FOREIGN ' .. wrong)
end
local owner, highest = ARGV[1], tonumber(ARGV[2])
local too_late = tonumber(ARGV[10])
if too_late > 0 and now > too_late then
    return {'late', now, 0, '', 0, 0, 0, '', 0}
end
local alone, named = ARGV[7] == '1', {[owner .. '.' .. ARGV[5]] = true}

for number, ago, url in string.gmatch(ARGV[3], '(%d+) (%d+) ([^\n]*)') do
    local ticket = owner .. '.' .. number
    local lease = leases[ticket] or {start = math.max(0, now - duration(ago)), late = 0}
    named[ticket] = true
    lease.expiry = now + duration(ARGV[4])
    set_lease(ticket, lease)
    set_url(ticket, url)
end
for number, ago, kind in string.gmatch(ARGV[6], '(%d+) (%d+) (%a+)') do
    local ticket, at = owner .. '.' .. number, math.max(0, now - duration(ago))
    local is_own = kind == 'used' and leases[ticket] -- without its lease, another request may have ended since
    if kind == 'back' then
        take_back(ticket)
    else
        drop(ticket)
        if (alone or kind == 'asked') and at >= get('before') then
            set('before', at)
            set('late', 0)
            set('by', is_own and string.sub(owner, -ID) or nil)
        end
    end
end
for ticket in pairs(leases) do
    local is_own = string.sub(ticket, 1, #owner + 1) == owner .. '.'
    if is_own and not named[ticket] and tonumber(string.sub(ticket, #owner + 2)) <= highest then
        take_back(ticket)
    end
end

local pace, pages, fetch, refusal, granted = string.match(ARGV[8], '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
if pace then
    set('pace', duration(pace))
    -- If the request was granted before the host was closed last, its answer does not shorten the backoffs.
    local knows = tonumber(granted) >= get('version')
    for name, known in pairs({backoff = duration(pages), fetch = duration(fetch), refusal = duration(refusal)}) do
        set(name, knows and known or math.max(get(name), known))
    end
end
local closed_for, why = string.match(ARGV[9], '^(%d+) (%S+)$')
if closed_for and now + duration(closed_for) > get('closed') then
    set('closed', now + duration(closed_for))
    set('why', why)
    set('version', math.max(now, get('version') + 1))
end

local kind, wait, bound, held_by, own = 'told', math.max(0, get('closed') - now), '', '', 0
if wait > 0 then
    bound = fields.why
end
if ARGV[11] then
    local ticket = owner .. '.' .. ARGV[11]
    local interval, slack, tolerance = duration(ARGV[12]), duration(ARGV[13]), duration(ARGV[14])
    local most, lease, waited = tonumber(ARGV[15]), duration(ARGV[16]), duration(ARGV[17])
    local grace, ahead, url = duration(ARGV[18]), duration(ARGV[19]), ARGV[20]
    local at, late = last()
    set('longest', math.max(get('longest'), interval))
    if backoff() > 0 and now > get('closed') + backoff() and now > at + interval then
        set('backoff', 0)
        set('fetch', 0)
        set('refusal', 0)
    end
    local due, start = interval, now
    bound = ''
    if get('pace') > interval then
        due = get('pace')
    end
    if at > 0 and due > 0 and at + due + math.max(slack, late) > now then
        start, bound = at + due + math.max(slack, late), due > interval and 'adaptive' or 'interval'
        own = fields.by == string.sub(owner, -ID) and at == get('before') and get('closed') <= now and 1 or 0
    end
    if get('closed') > start then
        start, bound = get('closed'), fields.why
    end
    local claimer, since, till = string.match(fields.claim or '', '^(%S+) (%d+) (%d+)$')
    since, till = tonumber(since or 0), tonumber(till or 0)
    local mine, is_far = now - waited, false
    if till <= now then
        claimer = nil
    end
    kind = 'wait'
    if in_flight >= most then -- another process has a request under way: after it ends, its interval follows
        local first = math.huge
        for held, its in pairs(leases) do
            if its.expiry < first then
                first, held_by = its.expiry, fields['url:' .. held] or ''
            end
        end
        wait, bound, is_far = math.min(math.max(interval, 2 * grace), first - now + 1), 'in-flight', true
    elseif claimer and claimer ~= owner and since < mine then -- another has waited longer: it goes first
        wait, bound = math.max(start, till) - now, till > start and '' or bound
    elseif start - now > ahead then
        wait, is_far = start - now, true
    else
        kind, wait = 'granted', start - now
        set_lease(ticket, {expiry = start + lease, start = start, late = tolerance})
        set_url(ticket, url)
        set('lag', math.max(0, start - mine))
        if claimer == owner then
            set('claim', nil)
        end
    end
    if kind == 'wait' and is_far and bound ~= fields.why and (not claimer or claimer == owner or mine < since) then
        set('claim', string.format('%s %.0f %.0f', owner, math.max(0, mine), now + wait + grace))
    elseif kind == 'wait' and claimer and bound ~= fields.why then -- its turn is far off: let it ask less often
        wait = math.max(wait, math.min((get('lag') - waited) * 0.75 - interval - 2 * grace, 8 * interval))
    end
end

if next(changed) then
    local words, gone = {'format', '2', 'seen', text(now)}, {}
    for name in pairs(changed) do
        local value = fields[name]
        if value then
            words[#words + 1], words[#words + 2] = name, NUMBERS[name] == nil and value or text(value)
        else
            gone[#gone + 1] = name
        end
    end
    redis.call('HSET', key, unpack(words)) -- a server that cannot write refuses this before anything has changed
    if #gone > 0 then
        redis.call('HDEL', key, unpack(gone))
    end
    local expiry = math.max(now + KEPT, now + 2 * get('longest'), get('closed') + backoff())
    for _, held in pairs(leases) do
        expiry = math.max(expiry, held.expiry)
    end
    redis.call('PEXPIRE', key, text(math.ceil(math.min(expiry - now, LONGEST) / 1000)))
end
return {kind, now, math.max(0, wait), bound, get('backoff'), get('fetch'), get('refusal'), held_by, own}
