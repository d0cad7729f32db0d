-- Predefined names of every script. See package redis, script.go.
--
-- KEYS[1] is the prefix of all keys, in its hash tag. Scripts build the names
-- of their keys from it (key()): all lie in one slot, so that Redis Cluster
-- sends the script to the server that holds them.
local prefix = KEYS[1]

-- key builds the name of a key from its parts, as DB.Key does in Go. Most have two or
-- three, and these need no list.
local function key(a, b, c, ...)
  if c == nil then
    return b == nil and prefix .. (a or '') or prefix .. a .. ':' .. b
  end
  if select('#', ...) == 0 then
    return prefix .. a .. ':' .. b .. ':' .. c
  end
  return prefix .. table.concat({a, b, c, ...}, ':')
end

-- heads has the lengths that pack has written as text: to write a number takes longer than
-- to look it up.
local heads = {}

-- pack encodes strings of any bytes so that no two lists produce the same text,
-- as Pack does in Go.
local function pack(...)
  local out, n = {}, 0
  for _, s in ipairs({...}) do
    local head = heads[#s]
    if not head then
      head = #s .. ':'
      heads[#s] = head
    end
    out[n + 1], out[n + 2] = head, s
    n = n + 2
  end
  return table.concat(out)
end

-- int formats a number without an exponent or a fraction: tostring uses exponents from 15
-- digits, and %d is exact for whole numbers below 2^53 and faster.
local function int(n)
  if n % 1 == 0 and n < 9007199254740992 and n > -9007199254740992 then
    return string.format('%d', n)
  end
  return string.format('%.0f', n)
end

-- write executes a command that changes something; scripts never use redis.call
-- for these. Expiry is absolute (PEXPIREAT) and nothing is random (no SPOP),
-- because the journal of the embedded server repeats the commands.
local write = redis.call

-- now returns the time in milliseconds, the same throughout one script: Redis's clock, which
-- may be set back (by hand, by a time server, by a failover to a machine whose clock is
-- behind), but never this one. After that it is ahead of Redis's clock, and goes a tenth
-- slower until it is not. Otherwise leases, limits and pauses would last longer by as much as
-- the clock was set back. What Redis's clock shows is noted once a second, by scripts that
-- write; this one follows it back by up to a second.
local clock
local ahead = 0
local function now()
  if not clock then
    local t = redis.call('TIME')
    local there = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
    local noted = redis.call('HMGET', key('clock'), 'seen', 'ahead')
    local since = there - tonumber(noted[1] or '0')
    ahead = tonumber(noted[2] or '0')
    if since < -1000 then
      ahead = ahead - since
    elseif since > 0 then
      ahead = math.max(ahead - math.floor(since / 10), 0)
    end
    if WRITES and (since < -1000 or since >= 1000) then
      write('HSET', key('clock'), 'seen', int(there), 'ahead', int(ahead))
    end
    clock = there + ahead
  end
  return clock
end

-- expire has a key end at a time of now().
local function expire(name, at)
  now() -- knows how far ahead it is
  write('PEXPIREAT', name, int(at - ahead))
end
