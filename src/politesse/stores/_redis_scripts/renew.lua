-- Renews a lease, unless it is over or another caller has taken it over.
--
--   KEYS[1]  the lease
--   ARGV[1]  its token
--   ARGV[2]  how many milliseconds the lease lasts from now on

if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
