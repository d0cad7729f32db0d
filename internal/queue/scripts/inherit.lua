-- Takes over a run from a silent hub.
--
-- ARGV[1] key
-- ARGV[2] fence
-- ARGV[3] the silent hub
-- ARGV[4] hub
-- ARGV[5] lease in milliseconds
--
-- Output: {'ok', run...}; run is what orphan() returns
--         {'stale'}  the run is not the silent hub's, or that has been heard again
local till = redis.call('ZSCORE', key('q', 'hubs'), ARGV[3])
local j = held(ARGV[1], ARGV[2])
if not j or j.hub ~= ARGV[3] or not till or tonumber(till) > now() then
  return {'stale'}
end
hold(j, ARGV[4], ARGV[5])
local out = {'ok'}
orphan(out, j)
return out
