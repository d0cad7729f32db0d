-- Looks up the owners of clients, among hubs that are alive.
--
-- ARGV[...] clients, packed
--
-- Output: {hub, number, ...}, with '' and '0' for a client without one
local out = {}
for _, client in ipairs(ARGV) do
  local held = redis.call('HMGET', key('s', 'home', client), 'hub', 'n')
  if held[1] and redis.call('EXISTS', key('s', 'hub', held[1])) == 1 then
    out[#out + 1] = held[1]
    out[#out + 1] = held[2]
  else
    out[#out + 1] = ''
    out[#out + 1] = '0'
  end
end
return out
