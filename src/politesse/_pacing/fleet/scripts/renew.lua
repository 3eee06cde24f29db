-- Has a request that is under way count as that for longer; also one of which this server does not know any more.
--
-- ARGV[4] ticket, [5] for how long, [6] URL, [7] session.

claim()
local known = leases[ARGV[4]]
set_lease(ARGV[4], now + duration(ARGV[5]), math.max(tonumber(ARGV[7]), known and known.session or 0), url_of(ARGV[6]))
write()
return {'renewed', ARGV[4], text(now)}
