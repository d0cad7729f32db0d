-- Notes that somebody has read a preview, if its entry is still as it was read.
--
-- ARGV[1] folder, packed: tenant, type, subfolder
-- ARGV[2] name
-- ARGV[3] entry as it was read
-- ARGV[4] entry to write
--
-- Output: {'ok'}, {'changed'} when the entry is another or gone by now
local folder = key('files', 'folder', ARGV[1]) -- hash: name -> entry
if redis.call('HGET', folder, ARGV[2]) ~= ARGV[3] then
  return {'changed'}
end
write('HSET', folder, ARGV[2], ARGV[4])
return {'ok'}
