-- Does what the other scripts do, on a key of its own, and publishes to the process that asks. So a server that cannot
-- write, or does not permit this client to, is noticed before anything depends on it, and so is a dead subscription.
--
-- ARGV[4] the process that asks.

claim()
write()
publish(ARGV[4], {'probed', '', text(now)})
return {'probed', '', text(now)}
