-- Notes that keys are in use now.
--
-- ARGV names
--
-- Output: {'ok'}
local all, used = key('g', 'apikeys'), key('g', 'apikeys', 'used')
for n = 1, #ARGV do
  if redis.call('HEXISTS', all, ARGV[n]) == 1 then
    write('HSET', used, ARGV[n], int(now()))
  end
end
return {'ok'}
