-- Remembers a chat and who wrote in it last.
-- ARGV: term, chat, user
-- Output: ok | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
write('ZADD', key('chats'), int(now()), ARGV[2])
write('HSET', key('chat_users'), ARGV[2], ARGV[3])
return {'ok'}
