-- Records that a hub is stopping and will no longer hold anything.
--
-- ARGV[1] hub
--
-- Output: {'ok'}
local hubs = key('q', 'hubs')
write('ZREM', key('q', 'hubs', 'parts'), ARGV[1])
if redis.call('ZSCORE', hubs, ARGV[1]) then
  write('ZADD', hubs, int(now()), ARGV[1])
end
return {'ok'}
