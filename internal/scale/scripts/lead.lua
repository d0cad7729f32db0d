-- Lets one hub at a time scale, and reads what is known about all classes.
--
-- ARGV[1] hub that asks
-- ARGV[2] how long it is this hub's, in milliseconds
--
-- Output: {'ok', now in milliseconds, class, record, ...}, {'taken'} when it is another hub's
local lead = key('scale', 'lead')
local holder = redis.call('GET', lead)
if holder and holder ~= ARGV[1] then
  return {'taken'}
end
write('SET', lead, ARGV[1])
expire(lead, now() + ARGV[2])
local out = {'ok', int(now())}
for _, text in ipairs(redis.call('HGETALL', key('scale', 'classes'))) do
  out[#out + 1] = text
end
return out
