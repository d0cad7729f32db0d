-- Gives an agent's name to a key, unless it has another one.
--
-- ARGV[1] name
-- ARGV[2] key
-- ARGV[3] how long a name is kept that nobody uses, in milliseconds
-- ARGV[4] how many names there may be
-- ARGV[5] the key that has the name for certain, or ''; whatever is written here then gives way
--
-- Output: {'yours', a name that was dropped to make room, ...}
--         {'taken', the other key}
--         {'full'}
local all, name, mine, certain = key('g', 'pins'), ARGV[1], ARGV[2], ARGV[5]
local keep, most = tonumber(ARGV[3]), tonumber(ARGV[4])

local function read(value)
  local at, owner = string.match(value, '^(%d+) (.+)$')
  return tonumber(at or '0'), owner
end

local value, reply = redis.call('HGET', all, name), {'yours'}
if value then
  local at, owner = read(value)
  if certain ~= '' and certain ~= owner then
    write('HSET', all, name, int(now()) .. ' ' .. certain)
    at, owner = now(), certain
  end
  if owner and (now() - at <= keep or certain ~= '') then
    if owner ~= mine then
      return {'taken', owner}
    end
    if now() - at < 3600000 then
      return {'yours'} -- recorded recently: hubs ask every minute
    end
  end
elseif redis.call('HLEN', all) >= most then
  local list = redis.call('HGETALL', all)
  for i = 1, #list, 2 do
    local at, owner = read(list[i + 1])
    if not owner or now() - at > keep then
      write('HDEL', all, list[i])
      reply[#reply + 1] = list[i]
    end
  end
  if #reply == 1 and certain == '' then
    return {'full'}
  end
end
if certain ~= '' and certain ~= mine then
  write('HSET', all, name, int(now()) .. ' ' .. certain)
  return {'taken', certain}
end
write('HSET', all, name, int(now()) .. ' ' .. mine)
return reply
