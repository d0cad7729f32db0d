-- Ends a run and its job: leased, running -> done, failed, cancelled.
--
-- ARGV[1] key
-- ARGV[2] fence
-- ARGV[3] state
-- ARGV[4] how many milliseconds its holder has had it; '' if that is not known
-- ARGV[5] what its result depends on, see package resultcache; '' if that is not known
-- ARGV[6] history entry
-- ARGV[7] summary
-- ARGV[8] reason
-- ARGV[9] bound of history entries
-- ARGV[10] bound of their bytes
-- ARGV[11] bound of the entries of one tenant
-- ARGV[12] number of indexes of files, then their keys, then the files that the
--          entry names
--
-- Output: {'ok', number of live jobs that its caller has now}
--         {'stale'}
--         {'withdrawn'}  it has ended, without an entry unless a listing has shown it
local function ok(j)
  return {'ok', int(redis.call('ZCARD', key('q', 'caller', j.caller)))}
end

local j = get(ARGV[1])
if not j or j.fence ~= ARGV[2] then
  return {'stale'}
end
if not runs(j) then
  if j.withdrawn and j.gone == '1' or j.was_listed then
    return {'withdrawn'}
  end
  -- The same end sent again, but not the end of a job that is waiting again.
  return (j.finished and j.gone ~= '1') and ok(j) or {'stale'}
end
let_go(j, ARGV[4])
local withdrawn = j.withdrawn
if withdrawn and not shows(j) then
  vanish(j, withdrawn)
  return {'withdrawn'}
end
finish(j, ARGV[3], ARGV[6], ARGV[7], ARGV[8])
if ARGV[5] ~= '' and j.state == 'done' and not j.parent then
  local equal = redis.call('HGET', key('q', 'results', j.tenant), ARGV[5])
  set(j, 'result', ARGV[5], 'equal', equal or '')
  write('HSET', key('q', 'results', j.tenant), ARGV[5], j.key)
end
trim(j, ARGV[9], ARGV[10], ARGV[11])
used(12)
return withdrawn and {'withdrawn'} or ok(j)
