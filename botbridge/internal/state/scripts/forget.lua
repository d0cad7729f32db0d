-- Forgets a request that is over, also as a favourite.
-- ARGV: term, id
-- Output: ok | active | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
if redis.call('ZSCORE', key('active'), ARGV[2]) then
  return {'active'}
end
local owners = key('star_owners', ARGV[2])
for _, who in ipairs(redis.call('SMEMBERS', owners)) do
  for _, star in ipairs(redis.call('HKEYS', key('stars', who))) do
    if string.match(star, '^(.*)/') == ARGV[2] then
      write('HDEL', key('stars', who), star)
      write('ZREM', key('star_order', who), star)
    end
  end
end
write('DEL', owners)
write('DEL', key('request', ARGV[2]))
return {'ok'}
