-- Accepts a job.
--
-- ARGV[1]  key
-- ARGV[2]  id
-- ARGV[3]  tenant
-- ARGV[4]  caller
-- ARGV[5]  client
-- ARGV[6]  class
-- ARGV[7]  priority, -100 to 100
-- ARGV[8]  hash of the body
-- ARGV[9]  number as the client gave it, or '' for the tenant's next one
-- ARGV[10] rank prefix of that number, or ''
-- ARGV[11] '1' for front
-- ARGV[12] body
-- ARGV[13] encrypted secrets, or ''
-- ARGV[14] requirements of the class
-- ARGV[15] bound of waiting jobs
-- ARGV[16] bound of their bytes
-- ARGV[17] bound of the tenant's waiting jobs, or '0' for none
-- ARGV[18] bound of their bytes, or '0' for none
-- ARGV[19] the bytes that this job counts for
-- ARGV[20] how many milliseconds a refusal may become the answer, '0' for none
-- ARGV[21] order of the queue: 'fair' or 'fifo'
-- ARGV[22] shape, or ''
-- ARGV[23] how many milliseconds of instances the tenant may use in a day, '0' for no
--          limit
-- ARGV[24] mark of the band, '' for the normal one
-- ARGV[25] URL of the callback, or ''
-- ARGV[26] events that it is told of, each between spaces
-- ARGV[27] bound of the tenant's callbacks that are not delivered
-- ARGV[28] bound of those of all
-- ARGV[29] the tenant's time between two prompts on average, in microseconds, '0' for no
--          limit
-- ARGV[30] where it was posted from, or ''
-- ARGV[31] label, or ''
--
-- Output: {'ok', job..., 'position', n}  accepted; n jobs are ahead of it
--         {'existing', job...}           the same job was accepted before
--         {'full'}, {'full_bytes'}, {'tenant_full'}, {'tenant_full_bytes'}
--         {'callbacks_full'}, {'tenant_callbacks_full'}
--         {'tenant_spent', n}            the tenant may go on in n milliseconds
--         {'tenant_rate', n}             the same, of a tenant that is too fast

local k, id, tenant, class = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
if get(k) then
  return answer('existing', k)
end
local other = redis.call('HGET', key('q', 'ids', tenant), id)
if other then
  local j = get(other)
  -- A withdrawn job counts as if it had never existed.
  if j and j.hash == ARGV[8] and j.gone ~= '1' and not j.withdrawn then
    return answer('existing', other)
  end
end
local weight = tonumber(ARGV[19])

-- too_heavy reports whether a job does not fit beside the waiting ones. If none are waiting, every
-- job fits: a bound smaller than a single job must not stop everything.
local function too_heavy(of, bound)
  local waits = share('waiting_bytes', of)
  return waits > 0 and waits + weight > tonumber(bound)
end

-- The tenant's own bounds come first, so that it is told about those.
if ARGV[23] ~= '0' then
  local sum, left = spent(tenant, tonumber(ARGV[23]))
  if sum >= tonumber(ARGV[23]) then
    return {'tenant_spent', int(left)}
  end
end
local pace
if ARGV[29] ~= '0' then
  local left
  left, pace = rate_wait(tenant, tonumber(ARGV[29]))
  if left > 0 then
    return {'tenant_rate', int(left)}
  end
end
if ARGV[17] ~= '0' and share('waiting_jobs', tenant) >= tonumber(ARGV[17]) then
  return {'tenant_full'}
end
if ARGV[18] ~= '0' and too_heavy(tenant, ARGV[18]) then
  return {'tenant_full_bytes'}
end
if ARGV[25] ~= '' and redis.call('SCARD', key('q', 'callbacks_open', tenant)) >= tonumber(ARGV[27]) then
  return {'tenant_callbacks_full'}
end
if ARGV[25] ~= '' and redis.call('ZCARD', key('q', 'callbacks_open')) >= tonumber(ARGV[28]) then
  return {'callbacks_full'}
end
if redis.call('ZCARD', key('q', 'waiting')) + redis.call('ZCARD', key('q', 'paused')) - redis.call('ZCARD', key('q', 'parts')) >= tonumber(ARGV[15]) then
  return {'full'}
end
if too_heavy('', ARGV[16]) then
  return {'full_bytes'}
end

if pace then
  write('SET', key('q', 'rate', tenant), int(pace))
  expire(key('q', 'rate', tenant), math.ceil(pace / 1000))
end
local number, prefix, band = ARGV[9], ARGV[10], ARGV[24]
if ARGV[21] == 'fifo' then
  band = ''
end
local turn = write('HINCRBY', key('q', 'counters'), 'turns', '1')
local j = {key = k}
if number == '' then
  local n = next_number(tenant)
  local place = n
  if ARGV[11] == '1' then
    n = 0 - n
    place = n
  elseif ARGV[21] == 'fifo' then
    place = turn
  else
    place = next_place(band, tenant, ARGV[4], n)
    set(j, 'place', place_text(place))
  end
  number, prefix = int(n), rank_prefix(tonumber(ARGV[7]), place)
end
if ARGV[20] ~= '0' then
  set(j, 'door', int(now() + tonumber(ARGV[20])))
end
set(j,
  'v', '1', 'id', id, 'tenant', tenant, 'caller', ARGV[4], 'client', ARGV[5], 'class', class,
  'priority', ARGV[7], 'hash', ARGV[8], 'number', number,
  'rank', band .. prefix .. string.format('%016.0f', turn) .. ':' .. k,
  'state', 'queued', 'weight', ARGV[19], 'fence', '0', 'attempts', '0', 'created', int(now()))
if ARGV[22] ~= '' then
  set(j, 'shape', ARGV[22])
end
if ARGV[30] ~= '' then
  set(j, 'posted_from', ARGV[30])
end
if ARGV[31] ~= '' then
  set(j, 'label', ARGV[31])
end
if ARGV[25] ~= '' then
  set(j, 'callback', ARGV[25], 'callback_events', ARGV[26])
  open_call(tenant, k)
  if not at_door(j) then
    call_back(j, 'queued')
  end
end
write('SET', key('q', 'body', k), ARGV[12])
if ARGV[13] ~= '' then
  write('SET', key('q', 'secret', k), ARGV[13])
end
if write('HINCRBY', key('q', 'class', class), 'live', '1') == 1 then
  write('HSET', key('q', 'class', class), 'requires', ARGV[14])
end
write('HSET', key('q', 'ids', tenant), id, k)
list(j)
wait(j)
tell_waits(j)
local accepted = record('ok', j)
table.insert(accepted, 'position')
table.insert(accepted, int(counter(ARGV[21])(j.rank, tenant)))
return accepted
