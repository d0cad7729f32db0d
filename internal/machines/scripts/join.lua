-- Lets the first who shows a token for joining have a token of the machine.
--
-- ARGV[1] name
-- ARGV[2] when the machine's token was made in milliseconds, and its hash
-- ARGV[3] its hash
-- ARGV[4] until when the token for joining is valid, in milliseconds
-- ARGV[5] how many machines there may be
--
-- Output: {'ok'}, also when the same is asked again; {'used'} when another was first; {'late'}; {'full'}
if now() >= tonumber(ARGV[4]) then
  return {'late'}
end
local first, all = key('g', 'join', ARGV[1]), key('g', 'machines')
local had = redis.call('GET', first)
if had and had ~= ARGV[3] then
  return {'used'}
end
if not redis.call('HGET', all, ARGV[1]) and redis.call('HLEN', all) >= tonumber(ARGV[5]) then
  return {'full'}
end
write('SET', first, ARGV[3])
expire(first, tonumber(ARGV[4]) + 60000)
write('HSET', all, ARGV[1], ARGV[2])
return {'ok'}
