-- Grants a start, or puts the request into the queue of its host.
--
-- ARGV[4] ticket, [5] interval, [6] slack, [7] by how much the start may be late, [8] how many requests may be under way
-- at once, [9] for how long it counts as under way, [10] URL, [11] how long the request can wait. [12] owners with their
-- sessions, the owner of the ticket first: their leases of earlier sessions are dead.
--
-- A start that is further off than [11], or than [9], is not granted: the answer is `wait`. Otherwise it would hold up
-- other processes until it was given back, and two that ask and give back by turns would put off the next start for ever.
--
-- A ticket that was granted and is reserved again was discarded: it is the first in line, and its grant never was.

local e = {
    ticket = ARGV[4],
    interval = duration(ARGV[5]),
    slack = duration(ARGV[6]),
    tolerance = duration(ARGV[7]),
    most = tonumber(ARGV[8]),
    lease = duration(ARGV[9]),
    url = url_of(ARGV[10]),
    patience = duration(ARGV[11]),
    session = tonumber(string.match(ARGV[12], '^%S+ (%d+)')),
}
claim()
drop_dead(ARGV[12])
set('longest', math.max(get('longest'), e.interval))
if get('backoff') + get('fetch') > 0 and now > get('closed') + math.max(get('backoff'), get('fetch')) and now > get('last') + e.interval then
    set('backoff', 0)
    set('fetch', 0)
end
local place = remove_from_queue(e.ticket) or #queue + 1
if leases[e.ticket] then
    take_back(e.ticket)
    place = 1
end
table.insert(queue, place, e)
local own = serve(e.ticket)
if not own then
    local free, url, words = holders()
    own = answer('queued', e, math.max(0, free - now), 'in-flight', url, words)
    if e.patience == 0 then
        remove_from_queue(e.ticket)
    end
end
write()
return own
