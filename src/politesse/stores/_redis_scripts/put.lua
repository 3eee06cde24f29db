-- Keeps a record; returns 1, or 0 if its lease was taken over, or another record was put since it was granted, or the
-- record that it is to replace is another one.
-- KEYS: the record, the lease. ARGV: what to keep; for how many milliseconds; the token of the lease, or an empty text;
-- the version to replace, or an empty text.

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
