-- Adds a key.
--
-- ARGV[1] name
-- ARGV[2] when it expires in milliseconds (0: never), and the key
-- ARGV[3] how many keys there may be
-- ARGV[4] a version that there never was
--
-- Output: {'ok'}, {'exists'} or {'full'}
local all = key('g', 'apikeys')
local old = redis.call('HGET', all, ARGV[1])
if old then
  local expires = tonumber(string.match(old, '^%d+') or '0')
  if expires == 0 or expires > now() then
    return {'exists'}
  end
elseif redis.call('HLEN', all) >= tonumber(ARGV[3]) then
  return {'full'}
end
write('HSET', all, ARGV[1], ARGV[2])
write('HDEL', key('g', 'apikeys', 'used'), ARGV[1])
write('SET', key('g', 'apikeys', 'version'), ARGV[4])
return {'ok'}
