-- Hands runs whose lease has ended to a hub, and buries old tombstones.
--
-- ARGV[1] hub
-- ARGV[2] lease in milliseconds
-- ARGV[3] bound of runs
--
-- Output: {'ok', run, run, ...}; run is what orphan() gives
local out = {'ok'}
for _, k in ipairs(redis.call('ZRANGEBYSCORE', key('q', 'tombs'), '-inf', int(now()), 'LIMIT', '0', '100')) do
  bury(k)
end
local last = redis.call('HGET', key('q', 'counters'), 'swept')
write('HSET', key('q', 'counters'), 'swept', int(now()))
local ended = redis.call('ZRANGEBYSCORE', key('q', 'leases'), '-inf', int(now()), 'LIMIT', '0', ARGV[3])
-- When nobody has swept for the time of a lease, Redis itself was away, most
-- likely, and no holder could renew: they get the time to do so now, once.
local away = last and now() - tonumber(last) > tonumber(ARGV[2])
for _, k in ipairs(ended) do
  local j = get(k)
  if not j or not runs(j) then
    write('ZREM', key('q', 'leases'), k)
  elseif away and j.grace ~= j.fence then
    local till = int(now() + tonumber(ARGV[2]))
    set(j, 'lease', till, 'grace', j.fence)
    write('ZADD', key('q', 'leases'), till, k)
  else
    hold(j, ARGV[1], ARGV[2])
    orphan(out, j)
  end
end
return out
