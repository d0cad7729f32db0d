-- Puts back what Redis has lost of a job, from the copy of a hub that was told about it: the job
-- itself, its run, or its end. Where Redis knows better, nothing changes.
--
-- ARGV[1]  key
-- ARGV[2]  body, or '' if the hub has none
-- ARGV[3]  encrypted secrets, or ''
-- ARGV[4]  requirements of the class
-- ARGV[5]  lease in milliseconds of the run that the hub holds, or '' for none
-- ARGV[6]  how many milliseconds a job that waits must wait now, for its run may
--          be another hub's to put back
-- ARGV[7]  state of the end, or '' for none
-- ARGV[8]  history entry
-- ARGV[9]  summary
-- ARGV[10] reason
-- ARGV[11] bound of history entries
-- ARGV[12] bound of their bytes
-- ARGV[13] bound of the entries of one tenant
-- ARGV[14] '1' if the client has confirmed the end
-- ARGV[15] number of fields of the record, then names and values, then what used() reads
--
-- Output: {'ok'}     it was put back
--         {'kept'}   it was not lost
--         {'stale'}  somebody has removed the job, or has a newer run

-- RUN are the fields of a record that a run sets.
local RUN = {'state', 'fence', 'hub', 'instance', 'upstream', 'sid', 'attempts', 'kills', 'lost', 'excuses',
             'reruns', 'reason', 'released', 'exhausted', 'started', 'ahead', 'claimed', 'ran', 'share', 'metered', 'why',
             'progress', 'failed_at', 'killed_at', 'lost_at'}

local k = ARGV[1]
local copy = {}
local last = 15 + 2 * tonumber(ARGV[15])
for i = 16, last, 2 do
  copy[ARGV[i]] = ARGV[i + 1]
end
local holds, ended = ARGV[5] ~= '', ARGV[7] ~= ''

-- create stores the job again, as a waiting one.
local function create()
  local fields = {}
  for name, value in pairs(copy) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  local j = {key = k}
  set(j, unpack(fields))
  set(j, 'state', 'queued', 'counted', '', 'seat', '', 'metered', '', 'charged', '', 'door', '', 'lease', '0', 'grace', '', 'progress', '0',
    'not_before', ARGV[6] == '0' and '0' or int(now() + tonumber(ARGV[6])))
  write('SET', key('q', 'body', k), ARGV[2])
  if ARGV[3] ~= '' then
    write('SET', key('q', 'secret', k), ARGV[3])
  end
  if write('HINCRBY', key('q', 'class', j.class), 'live', '1') == 1 then
    write('HSET', key('q', 'class', j.class), 'requires', ARGV[4])
  end
  if not j.parent and not redis.call('HGET', key('q', 'ids', j.tenant), j.id) then
    write('HSET', key('q', 'ids', j.tenant), j.id, k)
  end
  -- Numbers that were given out once are not given out again.
  local number = string.match(j.number, '^%-?(%d+)$')
  if number and tonumber(number) >= tonumber(redis.call('HGET', key('q', 'numbers'), j.tenant) or '0') then
    write('HSET', key('q', 'numbers'), j.tenant, int(tonumber(number) + 1))
  end
  if j.place then
    keep_place(j)
  end
  if j.callback then
    open_call(j.tenant, k)
  end
  list(j)
  if j.withdrawn then
    unlist(j)
  end
  wait(j)
  return j
end

-- detach takes a job out of the waiting ones, or away from the run that it has.
local function detach(j)
  if j.state == 'queued' then
    unwait(j)
  else
    let_go(j)
  end
end

local j = get(k)
local created = false
if not j then
  if ARGV[2] == '' or redis.call('EXISTS', key('q', 'forgotten', k)) == 1 then
    return {'stale'}
  end
  j = create()
  created = true
elseif is_over(j) then
  return {(ended or not holds) and 'kept' or 'stale'}
end

-- The parts in which a job is made end with it, so it must know them again.
if copy.parts and not j.parts then
  set(j, 'parts', copy.parts)
end
if ended and j.parent and tonumber(copy.fence) < tonumber(j.fence) then
  return {'stale'} -- the part is made again: what it had put out is gone
end
if ended then
  -- A job that has ended never comes back to life, so its end was lost, whatever has become of the
  -- job since.
  detach(j)
  if j.withdrawn and not shows(j) then
    vanish(j, j.withdrawn)
    return {'ok'}
  end
  finish(j, ARGV[7], ARGV[8], ARGV[9], ARGV[10])
  if ARGV[14] == '1' then
    set(j, 'delivered', '1')
    write('ZREM', undelivered(j), k)
  end
  trim(j, ARGV[11], ARGV[12], ARGV[13])
  used(last + 1)
  return {'ok'}
end

if not holds then
  if created then
    tell_waits(j)
  end
  return {created and 'ok' or 'kept'}
end

local mine, theirs = tonumber(copy.fence), tonumber(j.fence)
if not created and theirs >= mine then
  if theirs > mine or not runs(j) then
    return {'stale'}
  end
  -- Only what became of the run can have been lost.
  if copy.state == 'running' and j.state == 'leased' then
    if is_ahead(j) then
      set(j, 'ahead', '')
      write('HSET', key('q', 'instances'), j.instance, k)
    end
    set(j, 'state', 'running', 'started', copy.started or int(now()), 'door', '')
    call_back(j, 'started')
    tell('started', j)
  end
  if copy.released == '1' then
    free(j)
  end
  return {'kept'}
end
detach(j)
-- What the copy lacks the record must lack, too: an empty text is no number.
local fields = {}
for _, name in ipairs(RUN) do
  if copy[name] then
    fields[#fields + 1] = name
    fields[#fields + 1] = copy[name]
  elseif j[name] then
    write('HDEL', job_key(k), name)
    j[name] = nil
  end
end
local till = int(now() + tonumber(ARGV[5]))
set(j, unpack(fields))
set(j, 'lease', till, 'grace', '', 'door', '', 'not_before', '0')
write('ZADD', key('q', 'leases'), till, k)
-- The charge was lost along with the claim.
local cost = j.released ~= '1' and tonumber(copy.charged)
if cost then
  charge(j, cost)
  set(j, 'charged', int(cost))
end
if j.released ~= '1' and copy.seat == '1' then
  sit(j.tenant, k)
  set(j, 'seat', '1')
end
if j.released ~= '1' and not is_ahead(j) then
  local holder = redis.call('HGET', key('q', 'instances'), j.instance)
  local h = holder and get(holder)
  -- The instance may have been given to another job meanwhile: that run keeps it.
  if not (h and runs(h) and h.instance == j.instance) then
    write('HSET', key('q', 'instances'), j.instance, k)
  end
end
tell('claimed', j)
return {'ok'}
