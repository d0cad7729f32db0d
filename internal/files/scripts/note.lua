-- Remembers what is in a place on an instance.
--
-- ARGV[1] instance, packed
-- ARGV[2] place
-- ARGV[3] record
-- ARGV[4] how long all of it is remembered, in milliseconds
-- ARGV[5] most places to remember; beyond that, everything is forgotten and learned again
--
-- Output: {'ok'}
local at = key('files', 'at', ARGV[1]) -- hash: place -> record
if redis.call('HLEN', at) >= tonumber(ARGV[5]) then
  write('DEL', at)
end
write('HSET', at, ARGV[2], ARGV[3])
expire(at, now() + ARGV[4])
return {'ok'}
