-- Forgets a chat.
-- ARGV: term, chat
-- Output: ok | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
write('ZREM', key('chats'), ARGV[2])
write('HDEL', key('chat_users'), ARGV[2])
return {'ok'}
