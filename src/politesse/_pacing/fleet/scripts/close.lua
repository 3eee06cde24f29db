-- Closes the host, never for a shorter time than it is closed already, and voids what was granted before.
--
-- ARGV[4] the process that closes it, [5] for how long; 0 only asks. [6] by what, [7] backoff of pages and [8] of
-- robots.txt.

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
