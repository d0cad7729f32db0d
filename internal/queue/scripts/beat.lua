-- Records that a hub is alive, and tells it which others are silent.
--
-- ARGV[1] hub
-- ARGV[2] how many milliseconds it counts as alive
-- ARGV[3...] silent hubs that no longer hold anything
--
-- Output: {'ok', hub, hub, ...}    the silent ones
--         {'late', hub, hub, ...}  the same; this hub was silent itself
local hubs, parting = key('q', 'hubs'), key('q', 'hubs', 'parts')
for i = 3, #ARGV do
  local till = redis.call('ZSCORE', hubs, ARGV[i])
  if till and tonumber(till) <= now() then
    write('ZREM', hubs, ARGV[i])
  end
end
local mine = redis.call('ZSCORE', hubs, ARGV[1])
local out = {mine and tonumber(mine) <= now() and 'late' or 'ok'}
local last = redis.call('ZREVRANGE', hubs, 0, 0, 'WITHSCORES')[2]
local till = int(now() + tonumber(ARGV[2]))
write('ZADD', hubs, till, ARGV[1])
-- A hub of an older version is not here: it would take the parts of a job for jobs.
write('ZADD', parting, till, ARGV[1])
write('ZREMRANGEBYSCORE', parting, '-inf', int(now() - 3600000))
-- If all are silent, Redis was probably unavailable: they get time to come back.
local away = last and tonumber(last) <= now()
for _, hub in ipairs(redis.call('ZRANGEBYSCORE', hubs, '-inf', int(now()), 'LIMIT', '0', '100')) do
  if away then
    write('ZADD', hubs, till, hub)
  elseif tonumber(redis.call('ZSCORE', hubs, hub)) < now() - 3600000 then
    write('ZREM', hubs, hub) -- its leases ended long ago
  else
    out[#out + 1] = hub
  end
end
return out
