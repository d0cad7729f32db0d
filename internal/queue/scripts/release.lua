-- Frees the instance of a run; the job stays with its holder.
--
-- ARGV[1] key
-- ARGV[2] fence
-- ARGV[3] how many milliseconds its holder has had it; '' if that is not known
--
-- Output: {'ok'} or {'stale'}
local j = held(ARGV[1], ARGV[2])
if not j then
  return {'stale'}
end
free(j, ARGV[3])
return {'ok'}
