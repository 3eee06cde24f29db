-- Ends a request, or gives its start back unused. Then grants starts to the requests in the queue.
--
--   ARGV[4]   the ticket; empty for a request without a ticket, such as a fetch of robots.txt
--   ARGV[5]   `end`, or `back` if no request was made
--   ARGV[6]   1 if the interval counts from the end of a request
--   ARGV[7]   the interval that the answers of the host ask for; -1 if the request had no answer
--   ARGV[8]   the backoff of pages after this answer
--   ARGV[9]   the backoff of robots.txt after this answer
--   ARGV[10]  the backoff after answers that mean REFUSED, after this answer
--   ARGV[11]  when the request was granted

local ticket = ARGV[4]
claim()
if ARGV[5] == 'back' then
    take_back(ticket)
    remove_from_queue(ticket)
else
    drop_used(ticket)
    if ARGV[6] == '1' then
        set('before', math.max(posted, get('before')))
        set('before_late', 0)
    end
    recount()
    if tonumber(ARGV[7]) >= 0 then
        set('pace', duration(ARGV[7]))
        -- If the request was granted before the host was closed last, its answer does not shorten the backoffs.
        local knows = tonumber(ARGV[11]) >= get('version')
        for place, name in ipairs({'backoff', 'fetch', 'refusal'}) do
            local known = duration(ARGV[7 + place])
            set(name, knows and known or math.max(get(name), known))
        end
    end
end
serve('')
write()
return {'released', ticket, text(now)}
