-- Gives one hub at a time a duty.
--
-- ARGV[1] duty
-- ARGV[2] hub that asks
-- ARGV[3] how long it is this hub's, in milliseconds
--
-- Output: {'ok'}, {'taken'} when it is another hub's
local duty = key('files', 'duty', ARGV[1])
local holder = redis.call('GET', duty)
if holder and holder ~= ARGV[2] then
  return {'taken'}
end
write('SET', duty, ARGV[2])
expire(duty, now() + ARGV[3])
return {'ok'}
