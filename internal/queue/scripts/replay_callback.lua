-- Puts an event that could not be delivered at the end of its job's line.
--
-- ARGV[1] its id
-- ARGV[2] the tenant that asks, or '' for an operator
--
-- Output: {'ok'} or {'missing'}
local dead = redis.call('HMGET', key('q', 'callback_dead', ARGV[1]), 'tenant', 'key', 'id', 'url', 'event')
local tenant, k = dead[1], dead[2]
if not tenant or ARGV[2] ~= '' and ARGV[2] ~= tenant then
  return {'missing'}
end
drop_dead_call(ARGV[1], tenant)
write('HSET', call_key(k), 'tenant', tenant, 'id', dead[3], 'url', dead[4])
open_call(tenant, k)
join_line(tenant, k, dead[5])
return {'ok'}
