-- Notes that files are used now, unless they are known to be in use longer.
--
-- ARGV tenant, type, subfolder and name of each
--
-- Output: {'ok'}
for i = 1, #ARGV, 4 do
  local index, packed = index(ARGV[i + 1]), member(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  local last = redis.call('ZSCORE', index, packed)
  if last and tonumber(last) < now() then
    write('ZADD', index, int(now()), packed)
    write('ZADD', ownIndex(ARGV[i]), 'XX', int(now()), packed)
  end
end
return {'ok'}
