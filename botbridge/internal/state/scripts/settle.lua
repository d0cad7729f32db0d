-- Decides what becomes of a payment. One that is to be given back is so for good, and one
-- that was given back stays so.
-- ARGV: term, charge, state (kept | refund | refunded), ms until the next try, day, price
-- Output: ok, state | absent | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local charge, refunds = key('charge', ARGV[2]), key('refunds')
local was, next = redis.call('HGET', charge, 'state'), ARGV[3]
if not was then
  write('ZREM', refunds, ARGV[2])
  return {'absent'}
end
if was == 'refunded' or was == 'refund' and next == 'kept' then
  return {'ok', was}
end
write('HSET', charge, 'state', next)
if next == 'refund' then
  if tonumber(ARGV[4]) > 0 then
    write('HINCRBY', charge, 'tries', '1')
  end
  write('ZADD', refunds, int(now() + tonumber(ARGV[4])), ARGV[2])
  return {'ok', next}
end
write('ZREM', refunds, ARGV[2])
if next == 'refunded' then
  local counts = key('counts', ARGV[5])
  write('HINCRBY', counts, 'stars_refunded', ARGV[6])
  keep_day(counts)
end
return {'ok', next}
