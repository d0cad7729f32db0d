-- Adds a favourite of a user, or removes it if it is one.
-- ARGV: term, who, star, document, event, request, how many at most, ms to keep, ms to
-- keep the request of a removed one, ms to know the event
-- Output: ok, whether it is a favourite now (1) | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local stars, order, last = key('stars', ARGV[2]), key('star_order', ARGV[2]), key('star_last', ARGV[2])
local known = redis.call('HEXISTS', stars, ARGV[3]) == 1
if redis.call('GET', last) == ARGV[5] then
  return {'ok', known and '1' or '0'}
end
local function remove(star)
  local request = string.match(star, '^(.*)/') or star
  write('HDEL', stars, star)
  write('ZREM', order, star)
  for _, other in ipairs(redis.call('HKEYS', stars)) do
    if string.match(other, '^(.*)/') == request then
      return
    end
  end
  local owners = key('star_owners', request)
  write('SREM', owners, ARGV[2])
  -- It stays for as long as it is a favourite of somebody else.
  if redis.call('SCARD', owners) == 0 and redis.call('ZSCORE', key('active'), request) == false then
    write('PEXPIREAT', key('request', request), int(now() + tonumber(ARGV[9])))
  end
end
if known then
  remove(ARGV[3])
else
  write('HSET', stars, ARGV[3], ARGV[4])
  write('ZADD', order, int(now()), ARGV[3])
  local keep, owners = int(now() + tonumber(ARGV[8])), key('star_owners', ARGV[6])
  write('PEXPIREAT', stars, keep)
  write('PEXPIREAT', order, keep)
  write('SADD', owners, ARGV[2])
  write('PEXPIREAT', owners, keep)
  if redis.call('ZSCORE', key('active'), ARGV[6]) == false then
    write('PEXPIREAT', key('request', ARGV[6]), keep)
  end
  local over = redis.call('ZCARD', order) - tonumber(ARGV[7])
  if over > 0 then
    for _, star in ipairs(redis.call('ZRANGE', order, '0', int(over - 1))) do
      remove(star)
    end
  end
end
write('SET', last, ARGV[5])
write('PEXPIREAT', last, int(now() + tonumber(ARGV[10])))
return {'ok', known and '0' or '1'}
