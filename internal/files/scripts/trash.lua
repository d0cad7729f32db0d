-- The trash has names that were overwritten, or removed because nobody had used them for long. It
-- is a zset for each tenant: pack(type, subfolder, name, why, entry) -> until when the name is
-- kept. A name in it counts as a name of its blob, so that no sweep, not even an older hub's, takes
-- the bytes. Another zset (tenant -> bytes) tells how much each tenant's trash takes up.

-- most_trash bounds the names in a tenant's trash. The oldest make room.
local most_trash = 5000

local function trash(tenant)
  return key('files', 'trash', tenant)
end

-- unpacked returns the parts of a packed text.
local function unpacked(text)
  local parts, at = {}, 1
  while at <= #text do
    local colon = string.find(text, ':', at, true)
    local ends = colon + tonumber(string.sub(text, at, colon - 1))
    parts[#parts + 1], at = string.sub(text, colon + 1, ends), ends + 1
  end
  return parts
end

local function weigh_trash(tenant, bytes)
  if redis.call('EXISTS', trash(tenant)) == 0 then
    write('ZREM', key('files', 'trash'), tenant)
  else
    write('ZINCRBY', key('files', 'trash'), int(bytes), tenant)
  end
end

-- take_out takes a name out of the trash and returns its entry. Its blob still counts it.
local function take_out(tenant, packed)
  if write('ZREM', trash(tenant), packed) == 0 then
    return nil
  end
  local entry = unpacked(packed)[5]
  weigh_trash(tenant, 0 - sizeOf(entry))
  return entry
end

-- drop takes a name out of the trash for good and returns how much space it took up. The janitor
-- deletes the bytes as soon as nothing holds them (zset: pack(blob, bytes) -> not before).
local function drop(tenant, packed)
  local entry = take_out(tenant, packed)
  local blob = blobOf(entry)
  discount(blob)
  if blob ~= '' then
    local held = math.max(redis.call('PTTL', key('files', 'hold', blob)), 0)
    write('ZADD', key('files', 'dropped'), int(now() + held), pack(blob, int(sizeOf(entry))))
  end
  return sizeOf(entry)
end

-- discard lets go of an entry that has lost its name, or keeps it in the trash for some
-- milliseconds; '' means not at all. The oldest make room for it: there are at most most_trash
-- names, which take up at most most_bytes, 0 for any.
local function discard(tenant, typ, subfolder, name, entry, why, grace, most_bytes)
  if grace == '' or blobOf(entry) == '' then
    discount(blobOf(entry))
    return
  end
  local packed = pack(typ, subfolder, name, why, entry)
  if write('ZADD', trash(tenant), int(now() + tonumber(grace)), packed) == 0 then
    discount(blobOf(entry)) -- it was already there, and counts once
    return
  end
  weigh_trash(tenant, sizeOf(entry))
  local many = redis.call('ZCARD', trash(tenant)) - most_trash
  local bytes = most_bytes > 0 and tonumber(redis.call('ZSCORE', key('files', 'trash'), tenant) or '0') - most_bytes or 0
  while many > 0 or bytes > 0 do
    local oldest = redis.call('ZRANGE', trash(tenant), '0', '0')[1]
    if not oldest then
      break
    end
    many, bytes = many - 1, bytes - drop(tenant, oldest)
  end
end
