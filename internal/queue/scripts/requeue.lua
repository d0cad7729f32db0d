-- Puts the job of a lost run back in its old place: leased, running -> queued.
--
-- ARGV[1] key
-- ARGV[2] fence
-- ARGV[3] reason
-- ARGV[4] what the job is blamed for: 'none' (the attempt does not count),
--         'attempt', or 'kill' (the instance died in it)
-- ARGV[5] bound of attempts
-- ARGV[6] bound of kills
--
-- Output: {'ok', job...}
--         {'stale'}
--         {'cancelled', job...}  its cancel was requested: the holder must end it
--         {'exhausted', job...}  no attempts left, or too many kills: the holder must end it
local j = held(ARGV[1], ARGV[2])
if not j then
  return {'stale'}
end
if j.cancel then
  return answer('cancelled', j.key)
end
if j.exhausted == '1' then
  return answer('exhausted', j.key)
end
local attempts, kills = tonumber(j.attempts), tonumber(j.kills or '0')
if ARGV[4] == 'none' then
  attempts = attempts - 1
elseif ARGV[4] == 'kill' then
  kills = kills + 1
end
set(j, 'lost', (j.lost or '') .. pack(ARGV[3]), 'attempts', int(attempts), 'kills', int(kills))
if ARGV[4] ~= 'none' and (attempts >= tonumber(ARGV[5]) or kills >= tonumber(ARGV[6])) then
  -- The run keeps its lease: a holder that dies now leaves it to the sweep.
  free(j)
  set(j, 'exhausted', '1')
  return answer('exhausted', j.key)
end
let_go(j)
set(j, 'state', 'queued', 'reason', ARGV[3], 'progress', '0', 'started', '0')
wait(j)
tell_waits(j)
return answer('ok', j.key)
