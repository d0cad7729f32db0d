-- Stores what is known about a class, if the hub still is the one that scales.
--
-- ARGV[1] hub
-- ARGV[2] class
-- ARGV[3] record; '' removes it
--
-- Output: {'ok'}, {'taken'} when it is another hub's now, or nobody's
if redis.call('GET', key('scale', 'lead')) ~= ARGV[1] then
  return {'taken'}
end
if ARGV[3] == '' then
  write('HDEL', key('scale', 'classes'), ARGV[2])
else
  write('HSET', key('scale', 'classes'), ARGV[2], ARGV[3])
end
return {'ok'}
