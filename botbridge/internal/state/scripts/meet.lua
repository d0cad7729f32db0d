-- Remembers a chat and who wrote in it last, for a year.
-- ARGV: term, chat, user
-- Output: ok | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local chats, users, year = key('chats'), key('chat_users'), 365 * 86400000
-- Some at a time: no message has much to forget.
for _, chat in ipairs(redis.call('ZRANGEBYSCORE', chats, '-inf', int(now() - year), 'LIMIT', '0', '20')) do
  write('ZREM', chats, chat)
  write('HDEL', users, chat)
end
write('ZADD', chats, int(now()), ARGV[2])
write('HSET', users, ARGV[2], ARGV[3])
write('PEXPIREAT', chats, int(now() + year))
write('PEXPIREAT', users, int(now() + year))
return {'ok'}
