-- Records that a client confirmed the end of its job.
--
-- ARGV[1] tenant
-- ARGV[2] id
--
-- Output: {'ok', key} or {'missing'}
local k = redis.call('HGET', key('q', 'ids', ARGV[1]), ARGV[2])
local j = k and get(k)
if not j or j.withdrawn then
  return {'missing'}
end
if j.delivered ~= '1' then
  set(j, 'delivered', '1')
  write('ZREM', undelivered(j), j.key)
end
return {'ok', k}
