-- Reads machines.
--
-- ARGV[1] name; all machines without it
--
-- Output: {name, when its token was issued in milliseconds and its hash, ...}
local all = key('g', 'machines')
if not ARGV[1] then
  return redis.call('HGETALL', all)
end
local value = redis.call('HGET', all, ARGV[1])
return value and {ARGV[1], value} or {}
