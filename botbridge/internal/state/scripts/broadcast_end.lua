-- Ends a broadcast that has no chats left. It stays known until it expires, so
-- that the message that began it does not begin it again.
-- ARGV: term, id
-- Output: ok, reached, number of chats | absent | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local broadcast = key('broadcast', ARGV[2])
if write('SREM', key('broadcasts'), ARGV[2]) == 0 then
  return {'absent'}
end
return {'ok', redis.call('HGET', broadcast, 'reached') or '0', redis.call('HGET', broadcast, 'all') or '0'}
