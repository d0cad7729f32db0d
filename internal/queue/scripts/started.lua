-- Notes that an instance began to execute: leased -> running.
--
-- ARGV[1] key
-- ARGV[2] fence
--
-- Output: {'ok'}
--         {'cancelled'}  its cancel was asked for: the holder must end it
--         {'withdrawn'}  as cancelled, and no one is to hear of it
--         {'stale'}
local j = held(ARGV[1], ARGV[2])
if not j then
  return {'stale'}
end
if j.state == 'leased' then
  set(j, 'state', 'running', 'started', int(now()), 'door', '')
  tell('started', j)
end
return {j.withdrawn and 'withdrawn' or j.cancel and 'cancelled' or 'ok'}
