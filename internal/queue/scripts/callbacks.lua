-- What callbacks tell of jobs. The line of a job are its events that are still to be
-- delivered, the oldest first; only that one is ever due, so that they arrive in order.

-- LINE is how many events of a job may wait. Beyond it only its end joins the line.
local LINE = 32

local function call_key(k)
  return key('q', 'callback', k)
end

local function line_key(k)
  return key('q', 'callback_line', k)
end

-- call_at makes the first event of a job's line due. A tenant's score is when one of its
-- callbacks is due, or when the last was taken if that was later: tenants take turns.
local function call_at(tenant, k, at)
  write('ZADD', key('q', 'callbacks_due', tenant), int(at), k)
  local score = redis.call('ZSCORE', key('q', 'callback_tenants'), tenant)
  if not score or tonumber(score) > at then
    write('ZADD', key('q', 'callback_tenants'), int(at), tenant)
  end
end

-- call_later moves a tenant behind those whose callbacks are due now as well.
local function call_later(tenant)
  local first = redis.call('ZRANGE', key('q', 'callbacks_due', tenant), '0', '0', 'WITHSCORES')
  if #first == 0 then
    write('ZREM', key('q', 'callback_tenants'), tenant)
    return
  end
  write('ZADD', key('q', 'callback_tenants'), int(math.max(tonumber(first[2]), now())), tenant)
end

-- open_call counts a job whose end its callback has not delivered yet.
local function open_call(tenant, k)
  write('SADD', key('q', 'callbacks_open', tenant), k)
  write('ZADD', key('q', 'callbacks_open'), int(now() + 120000), k)
  write('HSET', call_key(k), 'tenant', tenant)
end

local function close_call(tenant, k)
  write('SREM', key('q', 'callbacks_open', tenant), k)
  write('ZREM', key('q', 'callbacks_open'), k)
  write('DEL', call_key(k), line_key(k))
end

-- join adds an event to a job's line. Each begins with when it was added.
local function join_line(tenant, k, event)
  if write('RPUSH', line_key(k), int(now()) .. ' ' .. event) == 1 then
    write('HSET', call_key(k), 'attempts', '0', 'error', '')
    call_at(tenant, k, now())
  end
end

local function tell_event(j, event, last)
  if not string.find(j.callback_events, ' ' .. event .. ' ', 1, true) then
    return
  end
  if not last and redis.call('LLEN', line_key(j.key)) >= LINE then
    return
  end
  -- The same event always has the same id, also when a restore tells of an end again.
  local id = j.key .. '.' .. event
  if event == 'started' then
    id = id .. '.' .. j.fence
  end
  write('HSET', call_key(j.key), 'tenant', j.tenant, 'id', j.id, 'url', j.callback)
  join_line(j.tenant, j.key, pack(id, event, int(now()), j.created or '0', j.started or '0',
    j.finished or '0', string.sub(j.reason or '', 1, 2000)))
end

-- call_back tells of a job: 'queued', 'started', or its end. It is called in the script
-- that changes the job, so that no end is lost.
local function call_back(j, event)
  if not j.callback or j.callback == '' or j.called == '1' then
    return
  end
  if j.announced ~= '1' then
    j.announced = '1'
    write('HSET', key('q', 'job', j.key), 'announced', '1')
    tell_event(j, 'queued')
  end
  if event == 'queued' then
    return
  end
  local last = event ~= 'started'
  tell_event(j, event, last)
  if last then
    j.called = '1'
    write('HSET', key('q', 'job', j.key), 'called', '1')
    if redis.call('EXISTS', line_key(j.key)) == 0 then
      close_call(j.tenant, j.key)
    end
  end
end

-- drop_dead_call removes an event that could not be delivered.
local function drop_dead_call(id, tenant)
  write('ZREM', key('q', 'callbacks_dead'), id)
  write('ZREM', key('q', 'callbacks_dead', tenant), id)
  write('DEL', key('q', 'callback_dead', id))
end
