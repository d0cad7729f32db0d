-- Takes over a run from another hub.
--
-- ARGV[1] key
-- ARGV[2] fence
-- ARGV[3] hub
-- ARGV[4] lease in milliseconds
--
-- Output: {'ok', run...} or {'stale'}; run is what orphan() returns
local j = held(ARGV[1], ARGV[2])
if not j then
  return {'stale'}
end
hold(j, ARGV[3], ARGV[4])
local out = {'ok'}
orphan(out, j)
return out
