-- Records why a job is waiting.
--
-- ARGV[1] key
-- ARGV[2] reason
--
-- Output: {'ok'}, {'missing'} or {'not_queued'}
local j = get(ARGV[1])
if not j then
  return {'missing'}
end
if j.state ~= 'queued' then
  return {'not_queued'}
end
if j.reason ~= ARGV[2] then
  set(j, 'reason', ARGV[2])
end
return {'ok'}
