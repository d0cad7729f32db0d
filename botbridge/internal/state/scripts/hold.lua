-- Keeps something until its user decides. Of one user only so many are kept: the
-- oldest is forgotten.
-- ARGV: term, who, id, document, ms to keep, how many of a user
-- Output: ok | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local held, list = key('v', 'held', ARGV[3]), key('holds', ARGV[2])
local gone = int(now() + tonumber(ARGV[5]))
write('SET', held, ARGV[4])
write('PEXPIREAT', held, gone)
write('ZADD', list, gone, ARGV[3])
write('PEXPIREAT', list, gone)
local surplus = redis.call('ZCARD', list) - tonumber(ARGV[6])
if surplus > 0 then
  for _, id in ipairs(redis.call('ZRANGE', list, '0', int(surplus - 1))) do
    write('DEL', key('v', 'held', id))
    write('ZREM', list, id)
  end
end
return {'ok'}
