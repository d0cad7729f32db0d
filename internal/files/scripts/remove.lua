-- Removes a name. Its blob stays until it is swept: a job may have it pinned.
--
-- ARGV[1]  key of the folder (hash: name -> entry)
-- ARGV[2]  key of the type's subfolders (set)
-- ARGV[3]  subfolder
-- ARGV[4]  name
-- ARGV[5]  entry as it was read, '' for none
-- ARGV[6]  key of the sources known, '' when the file has no source
-- ARGV[7]  source id
-- ARGV[8]  tenant
-- ARGV[9]  type
-- ARGV[10] the last use must not be after this, in milliseconds; '' for any
-- ARGV[11] how long the trash keeps it, in milliseconds; '' for not at all
--
-- Output: {'ok'}, {'used'} when it was used since, {'changed'} when the entry
-- is another or gone by now.
local index, packed = index(ARGV[9]), member(ARGV[8], ARGV[9], ARGV[3], ARGV[4])
if ARGV[10] ~= '' then
  local last = redis.call('ZSCORE', index, packed)
  if not last or tonumber(last) > tonumber(ARGV[10]) then
    return {'used'}
  end
end
local former = redis.call('HGET', ARGV[1], ARGV[4]) or ''
if former ~= ARGV[5] then
  return {'changed'}
end
write('ZREM', index, packed)
if former ~= '' then
  weigh(former, -1, ARGV[8], ARGV[9], ARGV[3], ARGV[4])
end
write('ZREM', ownIndex(ARGV[8]), packed)
if redis.call('EXISTS', ownIndex(ARGV[8])) == 0 then
  write('ZREM', key('files', 'shares'), ARGV[8])
end
if former == '' then
  return {'ok'}
end
write('HDEL', ARGV[1], ARGV[4])
unnamed(ARGV[8], ARGV[9], ARGV[3], ARGV[4])
discard(ARGV[8], ARGV[9], ARGV[3], ARGV[4], former, 'unused', ARGV[11], 0)
discharge(ARGV[8], former)
if redis.call('EXISTS', ARGV[1]) == 0 then
  write('SREM', ARGV[2], ARGV[3])
end
if ARGV[6] ~= '' then
  write('HDEL', ARGV[6], ARGV[7])
end
return {'ok'}
