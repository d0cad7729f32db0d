-- Removes a waiting job, or asks the holder of a running one to end it.
--
-- ARGV[1] key
-- ARGV[2] life of a tombstone in milliseconds
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
  set(j, 'cancel', int(now()))
  tell('cancel', j)
end
local out = answer(was, j.key)
table.insert(out, 1, 'ok')
return out
