-- Gives a machine a token.
--
-- ARGV[1] name
-- ARGV[2] when it was issued in milliseconds, and the hash of the token
-- ARGV[3] how many machines there may be
--
-- Output: {'ok'} or {'full'}
local all = key('g', 'machines')
if not redis.call('HGET', all, ARGV[1]) and redis.call('HLEN', all) >= tonumber(ARGV[3]) then
  return {'full'}
end
write('HSET', all, ARGV[1], ARGV[2])
return {'ok'}
