-- Notes what a job's result depended on, so that an equal prompt can have it. It is forgotten with
-- the job's history entry.
--
-- ARGV[1] key
-- ARGV[2] subject, see package resultcache
-- ARGV[3] stamp of the models
--
-- Output: {'ok'}
--         {'missing'}  the job has not ended well, or is gone
local j = get(ARGV[1])
if not j or j.state ~= 'done' or j.gone == '1' or redis.call('EXISTS', key('q', 'entry', j.key)) == 0 then
  return {'missing'}
end
set(j, 'result', ARGV[2], 'stamp', ARGV[3])
write('HSET', key('q', 'results', j.tenant), ARGV[2], j.key)
return {'ok'}
