-- Makes a hub the owner of a client, unless another hub has a newer socket.
--
-- ARGV[1] client, packed
-- ARGV[2] hub
-- ARGV[3] last ownership number that the hub has heard of
-- ARGV[4] entry
-- ARGV[5] how long the ownership lasts, in milliseconds
-- ARGV[6] how long the hub counts as alive, in milliseconds
-- ARGV[7] how long the client's socket there had been open when this was sent, in milliseconds
-- ARGV[8] when it was sent, by this clock as the hub knows it
--
-- Output: {number, 'moved', number of hubs told, including this one, hub}
--         {number, 'kept', 0, hub}  the hub was the owner already
--         {number, 'other', 0, other hub}  that one has a newer socket
local name = key('s', 'home', ARGV[1])
local held = redis.call('HMGET', name, 'hub', 'n', 'opened')
-- It may come late: Redis hung, or the hub did and sends it again. More than an ownership
-- lasts is no delay: the clock was set.
local late = now() - tonumber(ARGV[8])
if late < 0 or late > tonumber(ARGV[5]) then
  late = 0
end
local opened = now() - tonumber(ARGV[7]) - late
local before = tonumber(held[3] or '0')
if before > now() then
  before = 0 -- the clock was set back
end
local n, how, told = tonumber(held[2] or '0'), 'kept', 0
if held[1] == ARGV[2] and n >= tonumber(ARGV[3]) then
  write('HSET', name, 'entry', ARGV[4], 'opened', int(math.max(before, opened)))
elseif held[1] and held[1] ~= ARGV[2] and before > opened and redis.call('EXISTS', key('s', 'hub', held[1])) == 1 then
  return {int(n), 'other', '0', held[1]}
else
  -- It must grow even if a failover has lost the last numbers.
  n, how = math.max(n + 1, tonumber(ARGV[3]) + 1, now()), 'moved'
  write('HSET', name, 'hub', ARGV[2], 'n', int(n), 'entry', ARGV[4], 'opened', int(opened))
  told = redis.call('PUBLISH', key('s', 'hubs'), pack('claimed', ARGV[2], ARGV[1], int(n)))
end
expire(name, now() + tonumber(ARGV[5]))
-- Others may look up the owner before the hub's first heartbeat.
write('SET', key('s', 'hub', ARGV[2]), '1')
expire(key('s', 'hub', ARGV[2]), now() + tonumber(ARGV[6]))
return {int(n), how, int(told), ARGV[2]}
