-- Replaces a request that nobody has changed since it was read.
-- ARGV: term, id, version, document
-- Output: ok, version | stale | absent | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local request = key('request', ARGV[2])
local version = redis.call('HGET', request, 'v')
if not version then
  return {'absent'}
end
if saved(request, version, ARGV[3], ARGV[4]) then
  return {'ok', version}
end
if version ~= ARGV[3] then
  return {'stale'}
end
local next = int(tonumber(version) + 1)
write('HSET', request, 'v', next, 'doc', ARGV[4])
return {'ok', next}
