-- Remembers what is in a place on an instance.
--
-- ARGV[1] key of what is known of the instance (hash: place -> record)
-- ARGV[2] place
-- ARGV[3] record
-- ARGV[4] how long all of it is remembered, in milliseconds
-- ARGV[5] most places to remember; beyond that, everything is forgotten and learned again
--
-- Output: {'ok'}
if redis.call('HLEN', ARGV[1]) >= tonumber(ARGV[5]) then
  write('DEL', ARGV[1])
end
write('HSET', ARGV[1], ARGV[2], ARGV[3])
expire(ARGV[1], now() + ARGV[4])
return {'ok'}
