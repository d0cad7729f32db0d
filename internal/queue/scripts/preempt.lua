-- Asks whether the run of a bulk job may be interrupted for a waiting interactive one. It notes
-- that in both, so that no hub interrupts a second run for the same waiting job, nor a second run
-- of the same bulk job.
--
-- ARGV[1] key of the bulk job
-- ARGV[2] fence of its run
-- ARGV[3] key of the job that waits, perhaps behind that run
-- ARGV[4] for how many milliseconds that one gets no further instance like this
--
-- Output: {'ok'}
--         {'stale'}    the run is over, or another hub has it
--         {'refused'}  one of the two may not, or has had it before
local bulk = held(ARGV[1], ARGV[2])
if not bulk then
  return {'stale'}
end
local j = get(ARGV[3])
local waits = j and (j.state == 'queued' or is_ahead(j))
if not waits or band_of(j.rank) ~= BANDS[1] or now() < tonumber(j.awaits or '0') then
  return {'refused'}
end
if band_of(bulk.rank) ~= BANDS[#BANDS] or bulk.preempted or bulk.cancel then
  return {'refused'}
end
set(bulk, 'preempted', '1')
set(j, 'awaits', int(now() + tonumber(ARGV[4])))
return {'ok'}
