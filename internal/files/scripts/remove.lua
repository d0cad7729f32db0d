-- Takes a name away. Its blob stays until it is swept: a job may have it pinned.
--
-- ARGV[1] key of the folder (hash: name -> entry)
-- ARGV[2] key of the type's subfolders (set)
-- ARGV[3] subfolder
-- ARGV[4] name
-- ARGV[5] entry as it was read
-- ARGV[6] key of the sources known, '' when the file has no source
-- ARGV[7] source id
--
-- Output: {'ok'}, {'changed'} when the entry is another or gone by now.
local former = redis.call('HGET', ARGV[1], ARGV[4])
if former ~= ARGV[5] then
  return {'changed'}
end
write('HDEL', ARGV[1], ARGV[4])
discount(blobOf(former))
if redis.call('EXISTS', ARGV[1]) == 0 then
  write('SREM', ARGV[2], ARGV[3])
end
if ARGV[6] ~= '' then
  write('HDEL', ARGV[6], ARGV[7])
end
return {'ok'}
