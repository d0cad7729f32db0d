-- Stops what the operator names, or lets it go on.
--
-- ARGV[1] 'all', 'tenant:NAME' or 'instance:NAME'
-- ARGV[2] '1' to stop it, '0' to let it go on
-- ARGV[3] how many may be stopped
-- ARGV[4] in how many milliseconds what still runs there is taken back, '0' for never
-- ARGV[5] '1' if the operator says so, '0' for the scaler: it lets go on only what is not stopped by the operator
--
-- Output: {'ok', '1' if that has changed anything}
--         {'full'}
local stops, deadlines, by_hand = key('q', 'stops'), key('q', 'stop_deadlines'), key('q', 'stops_by_hand')
if ARGV[5] == '0' and redis.call('SISMEMBER', by_hand, ARGV[1]) == 1 then
  return {'ok', '0'}
end
if ARGV[2] == '0' then
  write('SREM', by_hand, ARGV[1])
  write('HDEL', deadlines, ARGV[1])
  return {'ok', int(write('SREM', stops, ARGV[1]))}
end
local known = redis.call('SISMEMBER', stops, ARGV[1]) == 1
if not known and redis.call('SCARD', stops) >= tonumber(ARGV[3]) then
  return {'full'}
end
if ARGV[5] == '1' then
  write('SADD', by_hand, ARGV[1])
end
if ARGV[4] == '0' then
  write('HDEL', deadlines, ARGV[1])
else
  write('HSET', deadlines, ARGV[1], int(now() + tonumber(ARGV[4])))
end
return {'ok', int(write('SADD', stops, ARGV[1]))}
