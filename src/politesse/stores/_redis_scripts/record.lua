-- The functions that the scripts of records share. A record is a string: a mark, its version, a blank, and the content.
-- A version has 16 digits, so that versions compare as text. It is the time of Redis, in microseconds, when the record
-- was put, or when the lease was granted under which the record was put. A new version is always larger than the one
-- before, even if the clock of Redis was set back.

local MARK = 'politesse-record/1 '
local HEADER = #MARK + 17
local NONE = '0000000000000000'

-- Returns the version of the record at a key, NONE if the key is empty, or nil if the key holds another value.
local function version_at(key)
  local header = redis.call('GETRANGE', key, 0, HEADER - 1)
  if header == '' then
    return NONE
  end
  local version = string.sub(header, #MARK + 1, HEADER - 1)
  if #header == HEADER and string.sub(header, 1, #MARK) == MARK and string.match(version, '^%d+$') then
    return version
  end
  return nil
end

local function version_after(version)
  local time = redis.call('TIME')
  return string.format('%016.0f', math.max(time[1] * 1000000 + time[2], tonumber(version) + 1))
end

local function foreign()
  return redis.error_reply('FOREIGN there is no record of politesse at this key')
end
