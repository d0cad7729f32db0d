-- Gives a machine a token.
--
-- ARGV[1] name
-- ARGV[2] hash of the token
-- ARGV[3] how many machines there may be
--
-- Output: {'ok'} or {'full'}
local all = key('g', 'machines')
if not redis.call('HGET', all, ARGV[1]) and redis.call('HLEN', all) >= tonumber(ARGV[3]) then
  return {'full'}
end
write('HSET', all, ARGV[1], int(now()) .. ' ' .. ARGV[2])
return {'ok'}
