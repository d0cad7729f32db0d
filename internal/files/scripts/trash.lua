-- The trash has names that were overwritten, or taken away because nobody had used them for
-- long. It is a zset for each tenant: pack(type, subfolder, name, why, entry) -> until when
-- the name is kept. A name in it counts as one of its blob, so that no sweep takes the bytes,
-- also none of an older hub. A zset of all (tenant -> bytes) tells what each one's takes.

-- most_trash bounds the names in the trash of a tenant. The oldest make room.
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

-- take_out takes a name out of the trash and returns its entry. Its blob goes on counting it.
local function take_out(tenant, packed)
  if write('ZREM', trash(tenant), packed) == 0 then
    return nil
  end
  local entry = unpacked(packed)[5]
  weigh_trash(tenant, 0 - sizeOf(entry))
  return entry
end

-- discard lets an entry go that has lost its name, or keeps it in the trash for some
-- milliseconds; '' is none.
local function discard(tenant, typ, subfolder, name, entry, why, grace)
  if grace == '' or blobOf(entry) == '' then
    discount(blobOf(entry))
    return
  end
  local packed = pack(typ, subfolder, name, why, entry)
  if write('ZADD', trash(tenant), int(now() + tonumber(grace)), packed) == 0 then
    discount(blobOf(entry)) -- it was there already, and counts once
    return
  end
  weigh_trash(tenant, sizeOf(entry))
  local many = redis.call('ZCARD', trash(tenant)) - most_trash
  if many > 0 then
    for _, old in ipairs(redis.call('ZRANGE', trash(tenant), '0', int(many - 1))) do
      discount(blobOf(take_out(tenant, old)))
    end
  end
end
