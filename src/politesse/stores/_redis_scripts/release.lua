-- Ends a lease, unless another caller has taken it over.
--
--   KEYS[1]  the lease
--   ARGV[1]  its token

if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1
