-- Deletes a record.
--
--   KEYS[1]  the record

if not version_at(KEYS[1]) then
  return foreign()
end
return redis.call('DEL', KEYS[1])
