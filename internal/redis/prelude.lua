-- What every script finds ready. See package redis, script.go.
--
-- KEYS[1] is the prefix of all keys, in its hash tag. Scripts build the names
-- of their keys from it (key()): all lie in one slot, so that Redis Cluster
-- sends the script to the server that holds them.
local prefix = KEYS[1]

-- key builds the name of a key from its parts, as DB.Key does in Go.
local function key(...)
  return prefix .. table.concat({...}, ':')
end

-- pack frames strings of any bytes so that no two lists of strings give the
-- same text, as Pack does in Go.
local function pack(...)
  local out = {}
  for i, s in ipairs({...}) do
    out[i] = #s .. ':' .. s
  end
  return table.concat(out)
end

-- int writes a number without an exponent or a fraction: tostring turns to
-- exponents at 15 digits.
local function int(n)
  return string.format('%.0f', n)
end

-- now is Redis's clock in milliseconds, the same through one script.
local clock
local function now()
  if not clock then
    local t = redis.call('TIME')
    clock = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
  end
  return clock
end

-- write does a command that changes something; scripts never use redis.call
-- for these. Expiry is absolute (PEXPIREAT) and nothing is left to chance
-- (no SPOP), because the journal of the embedded server repeats the commands.
local write = redis.call
