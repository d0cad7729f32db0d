-- Gives due events to a hub that sends them. An event that the hub does not settle within its lease
-- is due again. It also removes events that have been undeliverable for too long, and reports ends
-- that a hub of a version without callbacks has written.
--
-- ARGV[1] lease in milliseconds
-- ARGV[2] bound of events
-- ARGV[3] bound of the age of what could not be delivered, in milliseconds
-- ARGV[4] lease of an event about progress, in milliseconds
-- ARGV[5...] tenants of which none is wanted now
--
-- Output: {'ok', key, turn, tenant, id, url, attempts, how many milliseconds ago it joined
--          the line, event, ...}

-- mend looks after a job that has been open for long.
local function mend(k)
  local j = get(k)
  local call = redis.call('HGET', call_key(k), 'tenant')
  local tenant = j and j.tenant or call
  if j and not j.gone and j.called ~= '1' and (j.state == 'queued' or runs(j)) then
    write('ZADD', key('q', 'callbacks_open'), int(now() + 120000), k)
    return
  end
  if j and j.called ~= '1' and not j.refusal then
    call_back(j, j.state)
  end
  if tenant and redis.call('EXISTS', line_key(k)) == 1 then
    write('ZADD', key('q', 'callbacks_open'), int(now() + 120000), k)
    if not redis.call('ZSCORE', key('q', 'callbacks_due', tenant), k) then
      call_at(tenant, k, now())
    end
  elseif tenant then
    close_call(tenant, k)
  else
    write('ZREM', key('q', 'callbacks_open'), k)
  end
end

for _, k in ipairs(redis.call('ZRANGEBYSCORE', key('q', 'callbacks_open'), '-inf', int(now()), 'LIMIT', '0', '16')) do
  mend(k)
end
local old = int(now() - tonumber(ARGV[3]))
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('q', 'callbacks_dead'), '-inf', old, 'LIMIT', '0', '16')) do
  drop_dead_call(id, redis.call('HGET', key('q', 'callback_dead', id), 'tenant') or '')
end

local skip = {}
for i = 5, #ARGV do
  skip[ARGV[i]] = true
end
local out, left = {'ok'}, tonumber(ARGV[2])
for _, tenant in ipairs(redis.call('ZRANGEBYSCORE', key('q', 'callback_tenants'), '-inf', int(now()), 'LIMIT', '0', '64')) do
  if left == 0 then
    break
  end
  if not skip[tenant] then
    local k = redis.call('ZRANGEBYSCORE', key('q', 'callbacks_due', tenant), '-inf', int(now()), 'LIMIT', '0', '1')[1]
    local item = k and redis.call('LINDEX', line_key(k), '0')
    if item and is_progress(item) and redis.call('LLEN', line_key(k)) > 1 then
      -- The hub that was sending it is dead, and something newer is waiting.
      write('LTRIM', line_key(k), '1', '-1')
      write('HSET', call_key(k), 'attempts', '0', 'error', '')
      item = redis.call('LINDEX', line_key(k), '0')
    end
    if item then
      local lease = ARGV[1]
      if is_progress(item) then
        lease = ARGV[4]
        write('HSET', call_key(k), 'progressed', int(now()))
      end
      local call = redis.call('HMGET', call_key(k), 'id', 'url', 'attempts')
      local turn = write('HINCRBY', key('q', 'counters'), 'callbacks', '1')
      write('HSET', call_key(k), 'turn', int(turn))
      write('ZADD', key('q', 'callbacks_due', tenant), int(now() + tonumber(lease)), k)
      local space = string.find(item, ' ', 1, true)
      for _, v in ipairs({k, int(turn), tenant, call[1] or '', call[2] or '', call[3] or '0',
                          int(now() - tonumber(string.sub(item, 1, space - 1))), string.sub(item, space + 1)}) do
        out[#out + 1] = v
      end
      left = left - 1
    elseif k then
      write('ZREM', key('q', 'callbacks_due', tenant), k)
    end
    call_later(tenant)
  end
end
return out
