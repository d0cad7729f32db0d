-- Gives an agent's name to a key, unless it has another one.
--
-- ARGV[1] name
-- ARGV[2] key
-- ARGV[3] how long a name is kept that nobody uses, in milliseconds
-- ARGV[4] how many names there may be
--
-- Output: {'yours'}
--         {'taken', the other key}
--         {'full'}
local all, sinces, name, mine = key('g', 'pins'), key('g', 'pinsince'), ARGV[1], ARGV[2]
local keep, most = tonumber(ARGV[3]), tonumber(ARGV[4])

local function read(value)
  local at, owner = string.match(value, '^(%d+) (.+)$')
  return tonumber(at or '0'), owner
end

local value, mineAlready = redis.call('HGET', all, name), false
if value then
  local at, owner = read(value)
  mineAlready = owner == mine and now() - at <= keep
  if owner and now() - at <= keep then
    if owner ~= mine then
      return {'taken', owner}
    end
    if now() - at < 3600000 then
      return {'yours'} -- recorded recently: hubs ask every minute
    end
  end
elseif redis.call('HLEN', all) >= most then
  local list, freed = redis.call('HGETALL', all), false
  for i = 1, #list, 2 do
    local at, owner = read(list[i + 1])
    if not owner or now() - at > keep then
      write('HDEL', all, list[i])
      write('HDEL', sinces, list[i])
      freed = true
    end
  end
  if not freed then
    return {'full'}
  end
end
if not mineAlready then
  write('HSET', sinces, name, int(now()) .. ' ' .. mine)
end
write('HSET', all, name, int(now()) .. ' ' .. mine)
return {'yours'}
