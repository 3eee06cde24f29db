-- Ends a lease, unless it was taken over.
-- KEYS: the lease. ARGV: its token.

if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1
