-- Grants a start, or puts the request into the queue of its host.
--
--   ARGV[4]   the ticket
--   ARGV[5]   the interval before the request
--   ARGV[6]   the slack, which is added to the interval
--   ARGV[7]   how late the request may start
--   ARGV[8]   how many requests may be under way at once
--   ARGV[9]   how long the lease lasts after the start
--   ARGV[10]  the URL of the request
--   ARGV[11]  how long the request can wait for its start; with 0 it does not enter the queue
--   ARGV[12]  owners with their sessions, the owner of the ticket first; leases of their earlier sessions are dead
--
-- A start that is further off than ARGV[11] or ARGV[9] is not granted: the answer is `wait`. Such a grant would hold up
-- other processes until it was given back. Two processes that reserve and give back in turn would then put off the next
-- start for ever.
--
-- If a ticket was granted and is reserved again, its process has discarded the grant. The grant is taken back, and the
-- ticket becomes the first in the queue.

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
if backoff() > 0 and now > get('closed') + backoff() and now > get('last') + e.interval then
    set('backoff', 0)
    set('fetch', 0)
    set('refusal', 0)
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
