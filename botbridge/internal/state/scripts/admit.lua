-- Stores an event once.
-- ARGV: key, lane, document, ms to remember the key, bound per lane, bound in all
-- Output: new | seen | full | crowded (all lanes together)
local seen = key('seen', ARGV[1])
if redis.call('EXISTS', seen) == 1 then
  return {'seen'}
end
local waits = tonumber(redis.call('HGET', key('waits'), ARGV[2]) or '0')
if waits >= tonumber(ARGV[5]) then
  return {'full'}
end
if redis.call('ZCARD', key('inbox')) >= tonumber(ARGV[6]) then
  return {'crowded'}
end
local n = write('INCR', key('inbox_seq'))
write('SET', seen, '1')
write('PEXPIREAT', seen, int(now() + tonumber(ARGV[4])))
write('ZADD', key('inbox'), int(n), ARGV[1])
write('HSET', key('events'), ARGV[1], ARGV[3])
write('HINCRBY', key('waits'), ARGV[2], '1')
write('HSET', key('event_chats'), ARGV[1], ARGV[2])
redis.call('PUBLISH', key('admitted'), ARGV[1])
return {'new'}
