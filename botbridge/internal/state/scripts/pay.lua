-- Records a payment and, with it, the request that it pays for. A payment for nothing is
-- to be given back.
-- ARGV: term, charge, document, who, ms to keep, price, day, order, request or '',
-- document of the request
-- Output: ok | exists | refund | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local charge, who = key('charge', ARGV[2]), ARGV[4]
if redis.call('EXISTS', charge) == 1 then
  return {'exists'}
end
local request = key('request', ARGV[9])
local starts = ARGV[9] ~= '' and redis.call('EXISTS', request) == 0
local gone = int(now() + tonumber(ARGV[5]))
write('HSET', charge, 'doc', ARGV[3], 'state', starts and 'open' or 'refund')
write('PEXPIREAT', charge, gone)
local list = key('charges', who)
write('ZADD', list, int(now()), ARGV[2])
write('ZREMRANGEBYRANK', list, '0', '-201')
write('PEXPIREAT', list, gone)
local counts = key('counts', ARGV[7])
write('HINCRBY', counts, 'stars_paid', ARGV[6])
keep_day(counts)
if not starts then
  write('ZADD', key('refunds'), int(now()), ARGV[2])
  return {'refund'}
end
write('DEL', key('v', 'held', ARGV[8]))
write('ZREM', key('holds', who), ARGV[8])
write('HSET', request, 'v', '1', 'doc', ARGV[10])
enlist(who, ARGV[9])
local mine, month = key('mine', who), 30 * 86400000
write('ZADD', mine, int(now()), ARGV[9])
write('ZREMRANGEBYSCORE', mine, '-inf', int(now() - month))
write('ZREMRANGEBYRANK', mine, '0', '-5001')
write('PEXPIREAT', mine, int(now() + month))
return {'ok'}
