-- Records that an instance has started to execute: leased -> running.
--
-- ARGV[1] key
-- ARGV[2] fence
--
-- Output: {'ok'}
--         {'cancelled'}  its cancel was requested: the holder must end it
--         {'withdrawn'}  as cancelled, and nobody must be told of it
--         {'stale'}
local j = held(ARGV[1], ARGV[2])
if not j then
  return {'stale'}
end
if j.state == 'leased' then
  if is_ahead(j) then
    -- The tenant pays from here on. The run before may not have been released yet. A run that was
    -- itself released, because it must end, would never give the instance back.
    set(j, 'ahead', '', 'claimed', int(now()), 'ran', note_ran(0))
    if j.released ~= '1' then
      write('HSET', key('q', 'instances'), j.instance, j.key)
    end
  end
  set(j, 'state', 'running', 'started', int(now()), 'door', '')
  call_back(j, 'started')
  tell('started', j)
end
return {j.withdrawn and 'withdrawn' or j.cancel and 'cancelled' or 'ok'}
