-- The events that callbacks report. A job's line holds its events that have yet to be delivered,
-- the oldest first; only that one is ever due, so that they arrive in order.

-- LINE is how many events of a job may wait. Beyond that, only its end joins the line.
local LINE = 32

-- PACE is the shortest time between two reports of a job's progress, in milliseconds.
local PACE = 5000

local function call_key(k)
  return key('q', 'callback', k)
end

local function line_key(k)
  return key('q', 'callback_line', k)
end

-- call_at makes the first event of a job's line due. A tenant's score is when one of its callbacks
-- is due, or when the last was taken if that was later: tenants take turns.
local function call_at(tenant, k, at)
  write('ZADD', key('q', 'callbacks_due', tenant), int(at), k)
  local score = redis.call('ZSCORE', key('q', 'callback_tenants'), tenant)
  if not score or tonumber(score) > at then
    write('ZADD', key('q', 'callback_tenants'), int(at), tenant)
  end
end

-- call_later moves a tenant behind the others whose callbacks are due now.
local function call_later(tenant)
  local first = redis.call('ZRANGE', key('q', 'callbacks_due', tenant), '0', '0', 'WITHSCORES')
  if #first == 0 then
    write('ZREM', key('q', 'callback_tenants'), tenant)
    return
  end
  write('ZADD', key('q', 'callback_tenants'), int(math.max(tonumber(first[2]), now())), tenant)
end

-- open_call counts a job whose callback has not delivered its end yet.
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

-- is_progress reports whether an event of a line is about progress: its id tells.
local function is_progress(item)
  local space, colon = string.find(item, ' ', 1, true), string.find(item, ':', 1, true)
  local id = string.sub(item, colon + 1, colon + tonumber(string.sub(item, space + 1, colon - 1)))
  return string.find(id, '.progress.', 1, true) ~= nil
end

-- progress_waits reports whether a line ends with progress that no hub is sending.
local function progress_waits(k)
  local last = redis.call('LINDEX', line_key(k), '-1')
  if not last or not is_progress(last) then
    return false
  end
  return redis.call('LLEN', line_key(k)) > 1 or (redis.call('HGET', call_key(k), 'turn') or '') == ''
end

-- first_due returns when the first event of a job's line is due if it has not been sent yet.
local function first_due(k)
  local first = redis.call('LINDEX', line_key(k), '0')
  if first and is_progress(first) then
    return math.max(now(), tonumber(redis.call('HGET', call_key(k), 'progressed') or '0') + PACE)
  end
  return now()
end

-- join_line adds an event to a job's line, replacing progress that is waiting there, which is out
-- of date now. Each event begins with when it was added.
local function join_line(tenant, k, event)
  local item = int(now()) .. ' ' .. event
  if progress_waits(k) then
    write('LTRIM', line_key(k), '0', '-2')
    if is_progress(item) then
      write('RPUSH', line_key(k), item) -- due when the one before was
      return
    end
  end
  if write('RPUSH', line_key(k), item) == 1 then
    write('HSET', call_key(k), 'attempts', '0', 'error', '')
    call_at(tenant, k, first_due(k))
  end
end

local function tell_event(j, event, last)
  if not string.find(j.callback_events, ' ' .. event .. ' ', 1, true) then
    return
  end
  if not last and redis.call('LLEN', line_key(j.key)) >= LINE then
    return
  end
  -- The same event always has the same id, even when a restore reports an end again.
  local id = j.key .. '.' .. event
  if event == 'started' then
    id = id .. '.' .. j.fence
  elseif event == 'progress' then
    id = id .. '.' .. int(now()) .. '-' .. int(math.floor(1000 * (tonumber(j.progress) or 0)))
  end
  write('HSET', call_key(j.key), 'tenant', j.tenant, 'id', j.id, 'url', j.callback)
  join_line(j.tenant, j.key, pack(id, event, int(now()), j.created or '0', j.started or '0',
    j.finished or '0', string.sub(j.reason or '', 1, 2000), j.progress or '0'))
end

-- call_back reports an event of a job: 'queued', 'started', 'progress', or its end. It is called in
-- the script that changes the job, so that no end is lost.
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
  local last = event ~= 'started' and event ~= 'progress'
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
