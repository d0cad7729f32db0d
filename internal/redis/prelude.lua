-- Predefined names of every script. See package redis, script.go.
--
-- KEYS[1] is the prefix of all keys, in its hash tag. Scripts build the names
-- of their keys from it (key()): all lie in one slot, so that Redis Cluster
-- sends the script to the server that holds them.
local prefix = KEYS[1]

-- key builds the name of a key from its parts, as DB.Key does in Go.
local function key(...)
  return prefix .. table.concat({...}, ':')
end

-- pack encodes strings of any bytes so that no two lists produce the same text,
-- as Pack does in Go.
local function pack(...)
  local out = {}
  for i, s in ipairs({...}) do
    out[i] = #s .. ':' .. s
  end
  return table.concat(out)
end

-- int formats a number without an exponent or a fraction: tostring uses
-- exponents from 15 digits.
local function int(n)
  return string.format('%.0f', n)
end

-- now returns Redis's clock in milliseconds, the same throughout one script.
local clock
local function now()
  if not clock then
    local t = redis.call('TIME')
    clock = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
  end
  return clock
end

-- write executes a command that changes something; scripts never use redis.call
-- for these. Expiry is absolute (PEXPIREAT) and nothing is random (no SPOP),
-- because the journal of the embedded server repeats the commands.
local write = redis.call
