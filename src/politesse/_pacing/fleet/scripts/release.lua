-- Ends a request, or gives it back; what waits is granted its start.
--
-- ARGV[4] ticket; empty for a request without one, as a fetch of robots.txt. [5] `end` or `back`. [6] 1 if the interval
-- counts from the end. [7] the interval that the answers of the host ask for, or -1 if there was none. [8] backoff of
-- pages and [9] of robots.txt after the answer. [10] when the request was granted.

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
        -- What was granted before the last refusal says nothing of the time after it.
        local knows = tonumber(ARGV[10]) >= get('version')
        set('backoff', knows and duration(ARGV[8]) or math.max(get('backoff'), duration(ARGV[8])))
        set('fetch', knows and duration(ARGV[9]) or math.max(get('fetch'), duration(ARGV[9])))
    end
end
serve('')
write()
return {'released', ticket, text(now)}
