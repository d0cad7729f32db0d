-- Notes how far a broadcast is with one chat.
-- ARGV: term, id, chat, sending | unsent | reached | refused
-- Output: ok | absent | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local broadcast, left = key('broadcast', ARGV[2]), key('broadcast_left', ARGV[2])
if redis.call('EXISTS', broadcast) == 0 then
  return {'absent'}
end
if ARGV[4] == 'unsent' then
  write('ZADD', left, '0', ARGV[3])
  write('PEXPIREAT', left, redis.call('HGET', broadcast, 'ends'))
  return {'ok'}
end
write('ZREM', left, ARGV[3])
if ARGV[4] == 'reached' then
  write('HINCRBY', broadcast, 'reached', '1')
end
return {'ok'}
