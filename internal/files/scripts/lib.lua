-- What the scripts of package files share.
--
-- An entry is JSON text made by Go. Scripts read three of its members as text, which is safe
-- because their values contain no quotes, and never write into it.

-- blobOf returns the key of an entry's blob, '' if there is none yet.
local function blobOf(entry)
  return string.match(entry, '"key":"([^"]*)"') or ''
end

local function hasContent(entry, sha256)
  return sha256 ~= '' and string.find(entry, '"sha256":"' .. sha256 .. '"', 1, true) ~= nil
end

local function isFrom(entry, source)
  return string.find(entry, '"source_id":"' .. source .. '"', 1, true) ~= nil
end

-- The last use of each named file is in an index, one for inputs and one for everything else (zset:
-- packed tenant, type, subfolder, name -> milliseconds).
local function index(typ)
  return key('files', 'used', typ == 'input' and 'input' or 'output')
end

local function member(tenant, typ, subfolder, name)
  return pack(tenant, typ, subfolder, name)
end

local function sizeOf(entry)
  return math.max(tonumber(string.match(entry, '"size":(%-?%d+)') or '0'), 0)
end

-- weight returns how much space an entry takes up as an output, in bytes.
local function weight(entry)
  return string.sub(blobOf(entry), 1, 7) == 'output/' and sizeOf(entry) or 0
end

-- Everything except inputs is also in an index of its tenant, of the same form. The total size of
-- the files in it is the tenant's share (zset: tenant -> bytes). Files that an older hub has made
-- are in neither, until adopt.lua adds them.
local function ownIndex(tenant)
  return key('files', 'outputs', tenant)
end

local function addShare(tenant, bytes)
  if bytes ~= 0 then
    write('ZINCRBY', key('files', 'shares'), int(bytes), tenant)
  end
end

local function isCounted(tenant, packed)
  return redis.call('ZSCORE', ownIndex(tenant), packed)
end

-- touch notes the last use of a file in both indexes; entry is its current one.
local function touch(tenant, typ, subfolder, name, at, entry)
  local packed = member(tenant, typ, subfolder, name)
  write('ZADD', index(typ), at, packed)
  if typ == 'input' then
    return
  end
  if not isCounted(tenant, packed) then
    addShare(tenant, weight(entry))
  end
  write('ZADD', ownIndex(tenant), at, packed)
end

-- weigh adds the size of an output's blob to the total of all outputs, which older hubs read, and
-- to its tenant's share, or subtracts it; sign is 1 or -1.
local function weigh(entry, sign, tenant, typ, subfolder, name)
  local bytes = sign * weight(entry)
  if bytes == 0 then
    return
  end
  write('HINCRBY', key('files', 'total'), 'output', int(bytes))
  if isCounted(tenant, member(tenant, typ, subfolder, name)) then
    addShare(tenant, bytes)
  end
end

-- refs counts the names of each blob (hash: key of blob -> number); a blob that is not in it has
-- none.
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

-- A tenant's uploads are counted in one hash: '=files' and '=bytes', and the number of names of
-- each blob, because equal files count once. Names that an older hub gave are not in it and cost
-- nothing.
local function uploads(tenant)
  return key('files', 'uploads', tenant)
end

local function isUpload(entry)
  return string.sub(blobOf(entry), 1, 8) == 'content/'
end

local function names(tenant, entry)
  return tonumber(redis.call('HGET', uploads(tenant), blobOf(entry)) or '0')
end

local function charge(tenant, entry)
  if not isUpload(entry) then
    return
  end
  if write('HINCRBY', uploads(tenant), blobOf(entry), '1') == 1 then
    write('HINCRBY', uploads(tenant), '=bytes', int(sizeOf(entry)))
  end
  write('HINCRBY', uploads(tenant), '=files', '1')
end

local function discharge(tenant, entry)
  if not isUpload(entry) or names(tenant, entry) == 0 then
    return
  end
  if write('HINCRBY', uploads(tenant), blobOf(entry), '-1') == 0 then
    write('HDEL', uploads(tenant), blobOf(entry))
    write('HINCRBY', uploads(tenant), '=bytes', int(0 - sizeOf(entry)))
  end
  if write('HINCRBY', uploads(tenant), '=files', '-1') == 0 then
    write('DEL', uploads(tenant))
  end
end

-- excess returns the name of the bound that a tenant would exceed with an upload that may replace
-- another, or nil. A bound of 0 means none.
local function excess(tenant, entry, former, max_bytes, max_files)
  local bytes, files = 0, 1
  if names(tenant, entry) == 0 then
    bytes = sizeOf(entry)
  end
  local again = former and isUpload(former) and names(tenant, former) or 0
  if again > 0 then
    files = 0
    if again == 1 and blobOf(former) ~= blobOf(entry) then
      bytes = bytes - sizeOf(former)
    end
  end
  local function beyond(field, more, bound)
    return bound > 0 and more > 0 and tonumber(redis.call('HGET', uploads(tenant), field) or '0') + more > bound
  end
  if beyond('=bytes', bytes, max_bytes) then
    return 'inputs'
  end
  if beyond('=files', files, max_files) then
    return 'input_files'
  end
  return nil
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
