-- Renews the lease of a request that is under way, even if this server has lost the lease.
--
--   ARGV[4]  the ticket
--   ARGV[5]  how long the lease lasts from now on
--   ARGV[6]  the URL of the request
--   ARGV[7]  the session of the ticket's owner

claim()
local known = leases[ARGV[4]]
set_lease(ARGV[4], now + duration(ARGV[5]), math.max(tonumber(ARGV[7]), known and known.session or 0), url_of(ARGV[6]))
write()
return {'renewed', ARGV[4], text(now)}
