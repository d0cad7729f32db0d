-- Reads the measured runs of the pairs that had one since the given time.
--
-- ARGV[1] the time, in milliseconds
--
-- Output: {'ok', now, pair, runs, pair, runs, ...}
local out = {'ok', int(now())}
for _, pair in ipairs(redis.call('ZRANGEBYSCORE', key('q', 'durations_used'), ARGV[1], '+inf')) do
  local runs = redis.call('HGET', key('q', 'durations'), pair)
  if runs then
    out[#out + 1] = pair
    out[#out + 1] = runs
  end
end
return out
