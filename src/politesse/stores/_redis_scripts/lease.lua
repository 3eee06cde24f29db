-- Returns the record if the caller knows another version of it. Otherwise returns a new lease, or, if another caller
-- holds the lease, how many milliseconds it still lasts.
--
--   KEYS[1]  the record
--   KEYS[2]  the lease
--   ARGV[1]  the version that the caller knows, or an empty text
--   ARGV[2]  how many milliseconds a new lease lasts

local version = version_at(KEYS[1])
if not version then
  return foreign()
end
if version ~= NONE and version ~= ARGV[1] then
  return { 'record', version, redis.call('GETRANGE', KEYS[1], HEADER, -1) }
end
local token = version_after(version)
if redis.call('SET', KEYS[2], token, 'NX', 'PX', ARGV[2]) then
  return { 'lease', token }
end
local left = redis.call('PTTL', KEYS[2])
if left < 0 then -- without a time to live, the key is no lease of politesse
  return foreign()
end
return { 'held', tostring(left) }
