-- Runs main once per nonce (KEYS[2]): the reply is stored for a minute, and
-- returned again if the script is resent because its reply was lost.
local nonce = KEYS[2]
local seen = redis.call('LRANGE', nonce, 0, -1)
if #seen > 0 then
  return seen
end
local reply = main()
for i = 1, #reply, 1000 do
  redis.call('RPUSH', nonce, unpack(reply, i, math.min(i + 999, #reply)))
end
redis.call('PEXPIRE', nonce, 60000)
return reply
