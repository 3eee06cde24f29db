-- Returns the record if it has another version than the caller knows, otherwise a lease, or for how many milliseconds
-- another one holds it.
-- KEYS: the record, the lease. ARGV: the version, or an empty text; for how many milliseconds the lease is to last.

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
if left < 0 then -- no lease of ours: it would never end
  return foreign()
end
return { 'held', tostring(left) }
