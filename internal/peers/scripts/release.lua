-- Gives up the ownership of a client, if it is unchanged.
--
-- ARGV[1] client, packed
-- ARGV[2] hub
-- ARGV[3] number
-- ARGV[4] entry
--
-- Output: {'ok'} or {'moved'}
local name = key('s', 'home', ARGV[1])
local held = redis.call('HMGET', name, 'hub', 'n', 'entry')
if held[1] ~= ARGV[2] or held[2] ~= ARGV[3] or held[3] ~= ARGV[4] then
  return {'moved'}
end
write('DEL', name)
redis.call('PUBLISH', key('s', 'hubs'), pack('released', ARGV[2], ARGV[1], ARGV[3]))
return {'ok'}
