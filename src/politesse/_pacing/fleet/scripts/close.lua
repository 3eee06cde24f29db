-- Closes a host, never for a shorter time than it is closed already. Earlier grants become void.
--
--   ARGV[4]  the owner (the process) that closes the host
--   ARGV[5]  how long the host is closed; with 0 the script changes nothing, and only reports
--   ARGV[6]  the reason: `retry-after`, `rate-limit`, `backoff` or `refused`
--   ARGV[7]  the backoff of pages
--   ARGV[8]  the backoff of robots.txt
--   ARGV[9]  the backoff after answers that mean REFUSED

local NO_TICKET = {ticket = '', tolerance = 0}

local closed = posted + duration(ARGV[5])
if closed > posted then
    claim()
    for place, name in ipairs({'backoff', 'fetch', 'refusal'}) do
        set(name, math.max(get(name), duration(ARGV[6 + place])))
    end
    if closed > get('closed') then
        set('closed', closed)
        set('why', ARGV[6])
        set('version', math.max(now, get('version') + 1))
        local informed = {[ARGV[4]] = true}
        for ticket in pairs(leases) do
            local owner = owner_of(ticket)
            if not informed[owner] then
                informed[owner] = true
                publish(ticket, answer('closed', NO_TICKET, closed - now, ARGV[6]))
            end
        end
    end
    write()
end
return answer('closed', NO_TICKET, math.max(0, get('closed') - now), state.why or '')
