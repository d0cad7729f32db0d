-- Adds measured runs to the latest ones of their structures.
--
-- ARGV[1] bound of the pairs of a structure and a GPU type
-- ARGV[2] bound of the runs of a pair
-- ARGV[3...] pair, run, pair, run, ...
--
-- Output: {'ok'}
local runs, used = key('q', 'durations'), key('q', 'durations_used')
for i = 3, #ARGV, 2 do
  local list = {}
  for run in string.gmatch((redis.call('HGET', runs, ARGV[i]) or '') .. ' ' .. ARGV[i + 1], '%S+') do
    list[#list + 1] = run
  end
  write('HSET', runs, ARGV[i], table.concat(list, ' ', math.max(1, #list - tonumber(ARGV[2]) + 1)))
  write('ZADD', used, int(now()), ARGV[i])
end
local excess = redis.call('ZCARD', used) - tonumber(ARGV[1])
if excess > 0 then
  for _, pair in ipairs(redis.call('ZRANGE', used, '0', int(excess - 1))) do
    write('HDEL', runs, pair)
  end
  write('ZREMRANGEBYRANK', used, '0', int(excess - 1))
end
return {'ok'}
