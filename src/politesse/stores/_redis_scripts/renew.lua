-- Has a lease last for so many milliseconds from now on, unless it was taken over or is over.
-- KEYS: the lease. ARGV: its token, the milliseconds.

if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
