-- Adds a key.
--
-- ARGV[1] name
-- ARGV[2] how long the key is valid, in milliseconds; 0 for ever
-- ARGV[3] the rest of it, without "{" before the members and "}" after them
-- ARGV[4] how many keys there may be
-- ARGV[5] a version that there never was
--
-- Output: {'ok', when it was made, when it expires}, {'exists'} or {'full'}
local all = key('g', 'apikeys')
local time, life = now(), tonumber(ARGV[2])
local old = redis.call('HGET', all, ARGV[1])
if old then
  local expires = tonumber(string.match(old, '^%d+'))
  if expires == 0 or expires > time then
    return {'exists'}
  end
elseif redis.call('HLEN', all) >= tonumber(ARGV[4]) then
  return {'full'}
end
local expires = life > 0 and time + life or 0
write('HSET', all, ARGV[1], int(expires) .. ' {' .. ARGV[3] .. ',"created":' .. int(time) .. ',"expires":' .. int(expires) .. '}')
write('HDEL', key('g', 'apikeys', 'used'), ARGV[1])
write('SET', key('g', 'apikeys', 'version'), ARGV[5])
return {'ok', int(time), int(expires)}
