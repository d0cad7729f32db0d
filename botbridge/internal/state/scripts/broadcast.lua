-- Begins a broadcast to every chat that there is.
-- ARGV: term, id, document, ms to keep
-- Output: ok, number of chats | exists | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local broadcast, left = key('broadcast', ARGV[2]), key('broadcast_left', ARGV[2])
if redis.call('EXISTS', broadcast) == 1 then
  return {'exists'}
end
local chats, ends = redis.call('ZRANGE', key('chats'), '0', '-1'), int(now() + tonumber(ARGV[4]))
write('HSET', broadcast, 'doc', ARGV[3], 'all', int(#chats), 'reached', '0', 'ends', ends)
write('PEXPIREAT', broadcast, ends)
for i, chat in ipairs(chats) do
  write('ZADD', left, int(i), chat)
end
if #chats > 0 then
  write('PEXPIREAT', left, ends)
end
write('SADD', key('broadcasts'), ARGV[2])
return {'ok', int(#chats)}
