-- Closes a host, never for a shorter time than it is closed already. Earlier grants become void.
--
--   ARGV[4]  the owner (the process) that closes the host
--   ARGV[5]  how long the host is closed; with 0 the script changes nothing, and only reports
--   ARGV[6]  the reason: `retry-after`, `rate-limit` or `backoff`
--   ARGV[7]  how long the last refusal of a page would close the host
--   ARGV[8]  how long the last refusal of robots.txt would close the host

local closed = posted + duration(ARGV[5])
if closed > posted then
    claim()
    set('backoff', math.max(get('backoff'), duration(ARGV[7])))
    set('fetch', math.max(get('fetch'), duration(ARGV[8])))
    if closed > get('closed') then
        set('closed', closed)
        set('why', ARGV[6])
        set('version', math.max(now, get('version') + 1))
        local told = {[ARGV[4]] = true}
        for ticket in pairs(leases) do
            local owner = owner_of(ticket)
            if not told[owner] then
                told[owner] = true
                publish(ticket, {'closed', '', text(now), text(closed - now), text(get('version')), ARGV[6]})
            end
        end
    end
    write()
end
return {'closed', '', text(now), text(math.max(0, get('closed') - now)), text(get('version')), state.why or ''}
