-- Puts the job of a lost run back in its old place: leased, running -> queued.
--
-- ARGV[1] key
-- ARGV[2] fence
-- ARGV[3] reason
-- ARGV[4] what the job is blamed for: 'none' (the attempt does not count),
--         'attempt', 'kill' (the instance died in it; one that dies again is no
--         other one, and only an attempt), 'hopeless' (no attempt
--         can work), or 'unused' (it was taken back from an instance: as if it had
--         never been given out)
-- ARGV[5] bound of attempts
-- ARGV[6] bound of kills
-- ARGV[7] bound of runs that did not count
-- ARGV[8] bound of those among them that had begun to execute
-- ARGV[9] how many milliseconds the job must wait now
-- ARGV[10] how many reasons, and names of instances, are kept
-- ARGV[11] '1' if the instance is one of those where the job has failed
--
-- Output: {'ok', job...}
--         {'stale'}
--         {'cancelled', job...}  its cancel was requested: the holder must end it
--         {'exhausted', job...}  it must not run again: the holder must end it

-- each calls a function with each text of a packed list, in its packed form and as plain text.
local function each(packed, call)
  local at = 1
  while at <= #packed do
    local colon = string.find(packed, ':', at, true)
    local size = colon and tonumber(string.sub(packed, at, colon - 1))
    if not size then
      break
    end
    call(string.sub(packed, at, colon + size), string.sub(packed, colon + 1, colon + size))
    at = colon + size + 1
  end
end

-- latest adds a text to a packed list and keeps the last few.
local function latest(packed, text, bound)
  local items = {}
  each(packed, function(item)
    items[#items + 1] = item
  end)
  items[#items + 1] = pack(text)
  return table.concat(items, '', math.max(#items - bound + 1, 1))
end

-- lists reports whether a text is in a packed list.
local function lists(packed, text)
  local found = false
  each(packed, function(_, other)
    found = found or other == text
  end)
  return found
end

-- name adds the job's instance to a list of names in its record, once.
local function name(j, field)
  local names = j[field] or ''
  if not lists(names, j.instance) then
    set(j, field, latest(names, j.instance, tonumber(ARGV[10])))
    return true
  end
  return false
end

local j = held(ARGV[1], ARGV[2])
if not j then
  return {'stale'}
end
if j.cancel then
  return answer('cancelled', j.key)
end
if j.exhausted == '1' then
  return answer('exhausted', j.key)
end
local blame = ARGV[4]
-- Earlier hubs have put back records with empty numbers.
local attempts, kills = tonumber(j.attempts) or 0, tonumber(j.kills or '') or 0
local excuses, reruns = tonumber(j.excuses or '') or 0, tonumber(j.reruns or '') or 0
local spent
if blame == 'unused' then
  attempts = attempts - 1
elseif blame == 'none' then
  attempts, excuses = attempts - 1, excuses + 1
  if j.state == 'running' then
    reruns = reruns + 1
  end
  spent = excuses >= tonumber(ARGV[7]) or reruns >= tonumber(ARGV[8])
else
  if blame == 'kill' and name(j, 'killed_at') then
    kills = kills + 1
  end
  spent = blame == 'hopeless' or attempts >= tonumber(ARGV[5]) or kills >= tonumber(ARGV[6])
end
if blame ~= 'unused' then
  set(j, 'lost', latest(j.lost or '', ARGV[3], tonumber(ARGV[10])),
    'lost_at', latest(j.lost_at or '', int(now()), tonumber(ARGV[10])))
end
if ARGV[11] == '1' then
  name(j, 'failed_at')
end
set(j, 'attempts', int(attempts), 'kills', int(kills),
  'excuses', int(excuses), 'reruns', int(reruns))
settle(j, 0)
if spent then
  -- The run keeps its lease: if the holder dies now, the sweep takes care of the run.
  free(j)
  set(j, 'exhausted', '1')
  return answer('exhausted', j.key)
end
let_go(j)
if j.ahead then
  set(j, 'ahead', '')
end
set(j, 'state', 'queued', 'reason', ARGV[3], 'progress', '0', 'started', '0',
  'not_before', ARGV[9] == '0' and '0' or int(now() + tonumber(ARGV[9])))
wait(j)
tell_waits(j)
return answer('ok', j.key)
