-- Forgets an event that was answered.
-- ARGV: key, term
-- Output: ok | deposed
if redis.call('GET', key('term')) ~= ARGV[2] then
  return {'deposed'}
end
local chat = redis.call('HGET', key('event_chats'), ARGV[1])
if not chat then
  return {'ok'}
end
write('ZREM', key('inbox'), ARGV[1])
write('HDEL', key('events'), ARGV[1])
write('HDEL', key('event_chats'), ARGV[1])
if write('HINCRBY', key('waits'), chat, '-1') <= 0 then
  write('HDEL', key('waits'), chat)
end
return {'ok'}
