-- Counts something towards a user's share of the day. The same thing counts once.
-- ARGV: term, kind, day, who, name of the thing, share
-- Output: ok | over | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local used = key('used', ARGV[2], ARGV[3], ARGV[4])
if redis.call('SISMEMBER', used, ARGV[5]) == 1 then
  return {'ok'}
end
if redis.call('SCARD', used) >= tonumber(ARGV[6]) then
  return {'over'}
end
write('SADD', used, ARGV[5])
write('PEXPIREAT', used, int(now() + 2 * 86400000))
return {'ok'}
