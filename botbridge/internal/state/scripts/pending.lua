-- Lists events that wait to be handled, in the order of their coming.
-- ARGV: place after which to begin, how many at most
-- Output: ok, place of the last one, then key and lane of each
local found = redis.call('ZRANGEBYSCORE', key('inbox'), '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', '0', ARGV[2])
local out = {'ok', ARGV[1]}
for i = 1, #found, 2 do
  out[2] = found[i + 1]
  local lane = redis.call('HGET', key('event_chats'), found[i])
  if lane then
    out[#out + 1] = found[i]
    out[#out + 1] = lane
  end
end
return out
