-- Assigns a waiting job to an instance: queued -> leased.
--
-- ARGV[1] key
-- ARGV[2] instance; '' for a run that needs none
-- ARGV[3] hub
-- ARGV[4] upstream
-- ARGV[5] sid
-- ARGV[6] lease in milliseconds
-- ARGV[7] what the run is believed to take, in milliseconds; '' for as long as most
-- ARGV[8] weight of the tenant
-- ARGV[9] '1' if the job may wait at the instance behind a run of the same hub
-- ARGV[10] key of a run that has ended at the instance, or ''; it is released
-- ARGV[11] its fence
-- ARGV[12] how many runs the tenant may have at once, '0' for no limit
-- ARGV[13] how many milliseconds of instances it may use in a day, '0' for no limit
-- ARGV[14] how many milliseconds that hub has had the run; '' if that is not known
-- ARGV[15] why it goes to this instance, in plain words
--
-- Output: {'ok', number of classes that still have waiting jobs, job...}
--         {'missing'}
--         {'not_queued'}   it does not wait, is paused, or must not run yet
--         {'taken'}        the instance has a run, or is paused
--         {'capped'}       the tenant is at one of its limits, or paused
local k, instance = ARGV[1], ARGV[2]

-- claimed answers with the job and the number of classes left.
local function claimed(j)
  local out = record('ok', j)
  table.insert(out, 2, int(redis.call('SCARD', key('q', 'classes'))))
  return out
end

local j = get(k)
if not j then
  return {'missing'}
end
if j.state ~= 'queued' then
  -- The same claim, resent because its reply was lost.
  if runs(j) and j.hub == ARGV[3] and j.upstream == ARGV[4] and j.instance == instance then
    return claimed(j)
  end
  return {'not_queued'}
end
if j.paused == '1' or tonumber(j.not_before or '0') > now() then
  return {'not_queued'}
end
if j.parent then
  -- Whoever has the job must reach the instances of its parts, or it could not get their files.
  local whole = get(j.parent)
  if not whole or is_over(whole) then
    unwait(j)
    vanish(j)
    return {'missing'}
  end
  if runs(whole) and whole.hub ~= ARGV[3] then
    return {'not_queued'}
  end
end
local stopped = stops()
if stopped.all or stopped['tenant:' .. j.tenant] then
  return {'capped'}
end
if stopped['instance:' .. instance] then
  return {'taken'}
end
local ahead = ''
local holder = instance ~= '' and redis.call('HGET', key('q', 'instances'), instance)
if holder then
  -- After a failover that lost writes, the holder may no longer hold anything.
  local h = get(holder)
  if h and runs(h) and h.instance == instance and holder == ARGV[10] and h.fence == ARGV[11] then
    free(h, ARGV[14])
  elseif h and runs(h) and h.instance == instance then
    if ARGV[9] ~= '1' or h.state ~= 'running' or h.hub ~= ARGV[3] then
      return {'taken'}
    end
    ahead = '1'
  end
end
if not may_begin(j.tenant, ARGV[12], ARGV[13]) then
  return {'capped'}
end
unwait(j)
local share = tonumber(ARGV[8])
local cost = math.min(math.max((tonumber(ARGV[7]) or COST) / share, 1), MOST)
charge(j, cost)
pass_over(j)
if j.place then
  take_turn(j)
end
set(j, 'claimed', int(now()), 'ran', note_ran(0), 'charged', int(cost), 'share', ARGV[8])
if ARGV[12] ~= '0' then
  sit(j.tenant, k)
  set(j, 'seat', '1')
end
if ARGV[13] ~= '0' then
  set(j, 'metered', '1')
end
set(j, 'state', 'leased', 'attempts', int(tonumber(j.attempts) + 1), 'instance', instance,
  'upstream', ARGV[4], 'sid', ARGV[5], 'why', ARGV[15], 'released', '0', 'exhausted', '0', 'progress', '0', 'reason', '')
hold(j, ARGV[3], ARGV[6])
if ahead == '1' or j.ahead then
  set(j, 'ahead', ahead)
end
if ahead == '' and instance ~= '' then
  write('HSET', key('q', 'instances'), instance, k)
end
if not at_door(j) then -- no listing shows it
  tell('claimed', j)
end
return claimed(j)
