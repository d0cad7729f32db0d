-- Removes a job that its instance refused before its client was answered: leased -> gone. Only its
-- record is kept, for a short while, so that the hub that has the client can read the instance's
-- answer.
--
-- ARGV[1] key
-- ARGV[2] fence
-- ARGV[3] the instance's answer, compressed
-- ARGV[4] life of the record in milliseconds
--
-- Output: {'ok'}
--         {'stale'}
--         {'closed'}  the client has been told that the job was accepted
local j = held(ARGV[1], ARGV[2])
if not j then
  local gone = get(ARGV[1])
  -- The same refusal, resent because its reply was lost.
  return {gone and gone.refusal and gone.fence == ARGV[2] and 'ok' or 'stale'}
end
if j.state ~= 'leased' or not at_door(j) then
  return {'closed'}
end
let_go(j)
leave(j)
unname(j)
if j.callback then
  close_call(j.tenant, j.key)
end
set(j, 'state', 'cancelled', 'finished', int(now()), 'gone', '1', 'refusal', ARGV[3])
write('ZADD', key('q', 'tombs'), int(now() + tonumber(ARGV[4])), j.key)
tell('refused', j)
return {'ok'}
