-- Makes a hub the owner of a client.
--
-- ARGV[1] client, packed
-- ARGV[2] hub
-- ARGV[3] last ownership number that the hub has heard of
-- ARGV[4] entry
-- ARGV[5] how long the ownership lasts, in milliseconds
-- ARGV[6] how long the hub counts as alive, in milliseconds
--
-- Output: {number, 'moved', number of hubs told, including this one}
--         {number, 'kept', 0}  the hub was the owner already
local name = key('s', 'home', ARGV[1])
local held = redis.call('HMGET', name, 'hub', 'n')
local n, how, told = tonumber(held[2] or '0'), 'kept', 0
if held[1] == ARGV[2] and n >= tonumber(ARGV[3]) then
  write('HSET', name, 'entry', ARGV[4])
else
  -- It must grow even if a failover has lost the last numbers.
  n, how = math.max(n + 1, tonumber(ARGV[3]) + 1, now()), 'moved'
  write('HSET', name, 'hub', ARGV[2], 'n', int(n), 'entry', ARGV[4])
  told = redis.call('PUBLISH', key('s', 'hubs'), pack('claimed', ARGV[2], ARGV[1], int(n)))
end
write('PEXPIREAT', name, int(now() + tonumber(ARGV[5])))
-- Others may look up the owner before the hub's first heartbeat.
write('SET', key('s', 'hub', ARGV[2]), '1')
write('PEXPIREAT', key('s', 'hub', ARGV[2]), int(now() + tonumber(ARGV[6])))
return {int(n), how, int(told)}
