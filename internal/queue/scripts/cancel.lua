-- Removes a waiting job, or asks the holder of a running one to end it.
--
-- ARGV[1] key
-- ARGV[2] life of a tombstone in milliseconds
-- ARGV[3] '1' to withdraw a running job: no listing shows it from now on, and
--         its end leaves no entry; 'listed' if one has shown it running: its end
--         leaves one. A job that was cancelled before does not change. One that
--         waits at an instance is always withdrawn.
--
-- Output: {'ok', state before, job...} or {'missing'}
local j = get(ARGV[1])
if not j then
  return {'missing'}
end
local was = j.state
if was == 'queued' then
  withdraw(j, ARGV[2])
elseif runs(j) and not j.cancel then
  if ARGV[3] ~= '' or is_ahead(j) then
    local listed = ARGV[3] == 'listed' and not is_ahead(j)
    take_back(j, ARGV[2])
    if listed then
      set(j, 'was_listed', '1')
    end
  else
    set(j, 'cancel', int(now()))
    tell('cancel', j)
  end
end
local out = answer(was, j.key)
table.insert(out, 1, 'ok')
return out
