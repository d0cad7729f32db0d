-- Notes what became of an event that a hub has taken.
--
-- ARGV[1] key
-- ARGV[2] turn
-- ARGV[3] 'delivered', 'failed', 'dead', or 'later' (it was not sent)
-- ARGV[4] in how many milliseconds it is due again
-- ARGV[5] why it was not delivered
-- ARGV[6] bound of a tenant's events that could not be delivered
-- ARGV[7] bound of those of all
--
-- Output: {'ok'}
--         {'stale'}  the event is another hub's now, or has been settled
local k = ARGV[1]
local call = redis.call('HMGET', call_key(k), 'turn', 'tenant', 'id', 'url', 'attempts')
local tenant, item = call[2], redis.call('LINDEX', line_key(k), '0')
if call[1] ~= ARGV[2] or not item then
  return {'stale'}
end
write('HSET', call_key(k), 'turn', '')
local progress = is_progress(item)
-- Progress is not resent once something newer is waiting.
if (ARGV[3] == 'later' or ARGV[3] == 'failed') and not (progress and redis.call('LLEN', line_key(k)) > 1) then
  if ARGV[3] == 'failed' then
    write('HINCRBY', call_key(k), 'attempts', '1')
    write('HSET', call_key(k), 'error', ARGV[5])
  end
  write('ZADD', key('q', 'callbacks_due', tenant), int(now() + tonumber(ARGV[4])), k)
  call_later(tenant)
  return {'ok'}
end
write('LTRIM', line_key(k), '1', '-1')
if ARGV[3] == 'dead' and not progress then
  local event = string.sub(item, string.find(item, ' ', 1, true) + 1)
  local colon = string.find(event, ':', 1, true)
  local id = string.sub(event, colon + 1, colon + tonumber(string.sub(event, 1, colon - 1)))
  write('HSET', key('q', 'callback_dead', id), 'tenant', tenant, 'key', k, 'id', call[3], 'url', call[4],
    'attempts', int(tonumber(call[5] or '0') + 1), 'error', ARGV[5], 'event', event)
  write('ZADD', key('q', 'callbacks_dead'), int(now()), id)
  write('ZADD', key('q', 'callbacks_dead', tenant), int(now()), id)
  if redis.call('ZCARD', key('q', 'callbacks_dead', tenant)) > tonumber(ARGV[6]) then
    drop_dead_call(redis.call('ZRANGE', key('q', 'callbacks_dead', tenant), '0', '0')[1], tenant)
  end
  if redis.call('ZCARD', key('q', 'callbacks_dead')) > tonumber(ARGV[7]) then
    local oldest = redis.call('ZRANGE', key('q', 'callbacks_dead'), '0', '0')[1]
    drop_dead_call(oldest, redis.call('HGET', key('q', 'callback_dead', oldest), 'tenant') or '')
  end
end
if redis.call('EXISTS', line_key(k)) == 1 then
  write('HSET', call_key(k), 'attempts', '0', 'error', '')
  write('ZADD', key('q', 'callbacks_due', tenant), int(first_due(k)), k)
  call_later(tenant)
  return {'ok'}
end
write('ZREM', key('q', 'callbacks_due', tenant), k)
call_later(tenant)
local j = get(k)
if not j or j.called == '1' then
  close_call(tenant, k)
end
return {'ok'}
