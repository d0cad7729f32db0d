-- Stores a new request, if its user may have one more.
-- ARGV: term, id, document, who, day, price, quota, bound of waiting requests,
-- whether it is paid for at its end (1), request that it replaces or '', price of
-- that one, group in which it is counted or '', cap there, price of the replaced one there
-- Output: ok | exists | quota | cap | busy | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local request = key('request', ARGV[2])
if redis.call('EXISTS', request) == 1 then
  return {'exists'}
end
local who, price, quota, bound = ARGV[4], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local waiting, back = redis.call('ZCARD', key('live', who)), 0
if ARGV[10] ~= '' and redis.call('ZSCORE', key('live', who), ARGV[10]) then
  waiting, back = waiting - 1, tonumber(ARGV[11])
end
if bound > 0 and waiting >= bound then
  return {'busy'}
end
local group, cap, groups = ARGV[12], tonumber(ARGV[13]), key('spent_in', ARGV[5], who)
if group ~= '' and cap > 0 then
  local used = tonumber(redis.call('HGET', groups, group) or '0')
  if back > 0 then
    used = used - tonumber(ARGV[14])
  end
  if used + price > cap or ARGV[9] == '1' and used >= cap then
    return {'cap'}
  end
end
local spent = key('spent', ARGV[5], who)
local used = tonumber(redis.call('GET', spent) or '0')
used = used - back
if quota > 0 and (used + price > quota or ARGV[9] == '1' and used >= quota) then
  return {'quota'}
end
if price > 0 then
  write('INCRBY', spent, int(price))
  write('PEXPIREAT', spent, int(now() + 3 * 86400000))
  if group ~= '' then
    write('HINCRBY', groups, group, int(price))
    write('PEXPIREAT', groups, int(now() + 3 * 86400000))
  end
end
write('HSET', request, 'v', '1', 'doc', ARGV[3])
enlist(who, ARGV[2])
-- What a user has asked for can be shown to them, and forgotten.
local mine, month = key('mine', who), 30 * 86400000
write('ZADD', mine, int(now()), ARGV[2])
write('ZREMRANGEBYSCORE', mine, '-inf', int(now() - month))
write('ZREMRANGEBYRANK', mine, '0', '-5001')
write('PEXPIREAT', mine, int(now() + month))
return {'ok'}
