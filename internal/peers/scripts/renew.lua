-- Extends a hub's ownership of clients and returns their current owners. An
-- ownership that Redis has lost is created again.
--
-- ARGV[1] hub
-- ARGV[2] how long an ownership lasts, in milliseconds
-- ARGV[3...] client packed, number, entry; and so on
--
-- Output: {hub, number, ...}
local till = now() + tonumber(ARGV[2])
local out = {}
for i = 3, #ARGV, 3 do
  local name = key('s', 'home', ARGV[i])
  local held = redis.call('HMGET', name, 'hub', 'n')
  if not held[1] then
    held = {ARGV[1], ARGV[i + 1]}
    write('HSET', name, 'hub', held[1], 'n', held[2], 'entry', ARGV[i + 2])
  end
  if held[1] == ARGV[1] then
    expire(name, till)
  end
  out[#out + 1] = held[1]
  out[#out + 1] = held[2]
end
return out
