-- Removes a waiting job, or asks the holder of a running one to end it.
--
-- ARGV[1] key
-- ARGV[2] life of a tombstone in milliseconds
-- ARGV[3] '1' to withdraw a running job: no listing shows it from now on, and
--         its end leaves no entry. A job that was cancelled before does not change.
--         One that waits at an instance is always withdrawn.
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
  if ARGV[3] == '1' or is_ahead(j) then
    take_back(j, ARGV[2])
  else
    set(j, 'cancel', int(now()))
    tell('cancel', j)
  end
end
local out = answer(was, j.key)
table.insert(out, 1, 'ok')
return out
