-- Runs main once per nonce (KEYS[2]): the reply is stored for a minute, and
-- returned again if the script is resent because its reply was lost.
local nonce = KEYS[2]
local seen = redis.call('GET', nonce)
if seen then
  local reply, at = {}, 1
  while at <= #seen do
    local colon = string.find(seen, ':', at, true)
    local ends = colon + tonumber(string.sub(seen, at, colon - 1))
    reply[#reply + 1], at = string.sub(seen, colon + 1, ends), ends + 1
  end
  return reply
end
local reply, packed = main(), ''
for i = 1, #reply, 1000 do -- unpack() fails for thousands
  packed = packed .. pack(unpack(reply, i, math.min(i + 999, #reply)))
end
redis.call('SET', nonce, packed, 'PX', '60000')
return reply
