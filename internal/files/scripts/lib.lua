-- What the scripts of package files share.
--
-- An entry is JSON text made by Go. Scripts read three of its members as text,
-- which is safe because their values hold no quotes, and never write into it.

-- blobOf gives the key of an entry's blob, '' while there is none.
local function blobOf(entry)
  return string.match(entry, '"key":"([^"]*)"') or ''
end

local function hasContent(entry, sha256)
  return sha256 ~= '' and string.find(entry, '"sha256":"' .. sha256 .. '"', 1, true) ~= nil
end

local function isFrom(entry, source)
  return string.find(entry, '"source_id":"' .. source .. '"', 1, true) ~= nil
end

-- The last use of each named file is in an index, one for inputs and one for all
-- else (zset: packed tenant, type, subfolder, name -> milliseconds).
local function index(typ)
  return key('files', 'used', typ == 'input' and 'input' or 'output')
end

local function member(tenant, typ, subfolder, name)
  return pack(tenant, typ, subfolder, name)
end

-- weigh adds the size of an output's blob to what all of them take, or takes it
-- off; sign is 1 or -1.
local function weigh(entry, sign)
  if string.sub(blobOf(entry), 1, 7) == 'output/' then
    local size = tonumber(string.match(entry, '"size":(%-?%d+)') or '0')
    write('HINCRBY', key('files', 'total'), 'output', int(sign * math.max(size, 0)))
  end
end

-- refs counts the names of each blob (hash: key of blob -> number); a blob that
-- is not in it has none.
local refs = key('files', 'refs')

local function count(blob)
  if blob ~= '' then
    write('HINCRBY', refs, blob, 1)
  end
end

local function discount(blob)
  if blob == '' then
    return
  end
  local left = tonumber(redis.call('HGET', refs, blob) or '0')
  if left > 1 then
    write('HSET', refs, blob, int(left - 1))
  else
    write('HDEL', refs, blob)
  end
end

-- safe reports whether a blob cannot be swept away: it is held or has a name.
local function safe(blob)
  return redis.call('EXISTS', key('files', 'hold', blob)) == 1 or redis.call('HEXISTS', refs, blob) == 1
end

-- raise notes that a number of a prefix is in use (hash: prefix -> highest).
local function raise(numbers, prefix, number)
  if number > tonumber(redis.call('HGET', numbers, prefix) or '0') then
    write('HSET', numbers, prefix, int(number))
  end
end
