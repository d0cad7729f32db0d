-- Forgets the end of a part of a job, which is made again when the job is split again.
--
-- ARGV[1] key of the job
-- ARGV[2] fence
-- ARGV[3] key of the part
--
-- Output: {'ok'}
--         {'stale'}
if not held(ARGV[1], ARGV[2]) then
  return {'stale'}
end
local p = get(ARGV[3])
if p and p.result and p.parent == ARGV[1] then
  write('ZREM', key('q', 'tombs'), p.key)
  write('DEL', job_key(p.key))
  stay_gone(p.key)
end
return {'ok'}
