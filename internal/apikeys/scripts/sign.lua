-- Replaces a key by the same one with another signature.
--
-- ARGV[1] name
-- ARGV[2] its value until now
-- ARGV[3] the new one
--
-- Output: {'1'}, or {'0'} if it has changed meanwhile
local all = key('g', 'apikeys')
if redis.call('HGET', all, ARGV[1]) ~= ARGV[2] then
  return {'0'}
end
write('HSET', all, ARGV[1], ARGV[3])
return {'1'}
