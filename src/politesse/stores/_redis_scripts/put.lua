-- Keeps a record. Returns 1, or 0 if the record was not kept: another caller has taken over the lease, another record
-- was put since the lease was granted, or the present record does not have the version to replace.
--
--   KEYS[1]  the record
--   KEYS[2]  the lease
--   ARGV[1]  the new content
--   ARGV[2]  how many milliseconds the record is kept
--   ARGV[3]  the token of the lease, or an empty text
--   ARGV[4]  the version to replace, or an empty text

local version = version_at(KEYS[1])
if not version then
  return foreign()
end
if ARGV[4] ~= '' and ARGV[4] ~= version then
  return 0
end
local stamp = ARGV[3]
if stamp == '' then
  stamp = version_after(version)
else
  local holder = redis.call('GET', KEYS[2])
  if holder == stamp then
    redis.call('DEL', KEYS[2])
  end
  if (holder and holder ~= stamp) or version > stamp then
    return 0
  end
end
redis.call('SET', KEYS[1], MARK .. stamp .. ' ' .. ARGV[1], 'PX', ARGV[2])
return 1
