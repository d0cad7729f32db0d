-- Puts back a name that Redis has lost, from the copy of a hub that was told about it. Where Redis
-- knows better, nothing changes.
--
-- ARGV[1]  key of the folder (hash: name -> entry)
-- ARGV[2]  key of the folder's numbers (hash: series -> highest)
-- ARGV[3]  key of the type's subfolders (set)
-- ARGV[4]  type
-- ARGV[5]  subfolder
-- ARGV[6]  name
-- ARGV[7]  entry
-- ARGV[8]  tenant
-- ARGV[9]  series, '' if the name has no counter
-- ARGV[10] its number
-- ARGV[11] key of the sources known, '' when the file has no source
-- ARGV[12] source id
-- ARGV[13] how long sources are remembered, in milliseconds
-- ARGV[14] how long the file is in use, in milliseconds
--
-- Output: {'ok'}, {'kept'} if the name was not lost or is another file's by now,
-- {'unsafe'} when the blob may have been swept.
local folder, typ, subfolder, name, entry, tenant = ARGV[1], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local former, blob = redis.call('HGET', folder, name), blobOf(entry)
if former then
  if ARGV[11] == '' or not isFrom(former, ARGV[12]) or blobOf(former) ~= '' or blob == '' then
    return {'kept'}
  end
end
if blob ~= '' and not safe(blob) then
  return {'unsafe'}
end
count(blob)
weigh(entry, 1, tenant, typ, subfolder, name)
if not former then
  charge(tenant, entry)
end
write('HSET', folder, name, entry)
named(tenant, typ, subfolder, name, entry)
write('SADD', ARGV[3], subfolder)
touch(tenant, typ, subfolder, name, int(now() + ARGV[14]), entry)
if ARGV[9] ~= '' then
  raise(ARGV[2], ARGV[9], tonumber(ARGV[10]))
end
if ARGV[11] ~= '' then
  if not redis.call('HGET', ARGV[11], ARGV[12]) then
    write('HSET', ARGV[11], ARGV[12], name)
  end
  expire(ARGV[11], now() + ARGV[13])
end
return {'ok'}
