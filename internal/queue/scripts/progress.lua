-- Records how far the running node is.
--
-- ARGV[1] key
-- ARGV[2] fence
-- ARGV[3] fraction from 0 to 1
--
-- Output: {'ok'} or {'stale'}
local j = held(ARGV[1], ARGV[2])
if not j then
  return {'stale'}
end
set(j, 'progress', ARGV[3])
if j.state == 'running' and not j.cancel then
  call_back(j, 'progress')
end
return {'ok'}
