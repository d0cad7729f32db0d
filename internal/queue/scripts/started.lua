-- Notes that an instance began to execute: leased -> running.
--
-- ARGV[1] key
-- ARGV[2] fence
--
-- Output: {'ok'} or {'stale'}
local j = held(ARGV[1], ARGV[2])
if not j then
  return {'stale'}
end
if j.state == 'leased' then
  set(j, 'state', 'running', 'started', int(now()))
  tell('started', j)
end
return {'ok'}
