-- Stops what the operator names, or lets it go on.
--
-- ARGV[1] 'all', 'tenant:NAME' or 'instance:NAME'
-- ARGV[2] '1' to stop it, '0' to let it go on
-- ARGV[3] how many may be stopped
-- ARGV[4] in how many milliseconds what still runs there is taken back, '0' for never
--
-- Output: {'ok', '1' if that has changed anything}
--         {'full'}
local stops, deadlines = key('q', 'stops'), key('q', 'stop_deadlines')
if ARGV[2] == '0' then
  write('HDEL', deadlines, ARGV[1])
  return {'ok', int(write('SREM', stops, ARGV[1]))}
end
local known = redis.call('SISMEMBER', stops, ARGV[1]) == 1
if not known and redis.call('SCARD', stops) >= tonumber(ARGV[3]) then
  return {'full'}
end
if ARGV[4] == '0' then
  write('HDEL', deadlines, ARGV[1])
else
  write('HSET', deadlines, ARGV[1], int(now() + tonumber(ARGV[4])))
end
return {'ok', int(write('SADD', stops, ARGV[1]))}
