-- Reads all keys, unless nothing has changed since a version.
--
-- ARGV[1] the version that is known, or ''
--
-- Output: {'same', the time}, or
-- {version, the time, name, when it expires and the key, ...}
local version = redis.call('GET', key('g', 'apikeys', 'version')) or '0'
if version == ARGV[1] then
  return {'same', int(now())}
end
local out = redis.call('HGETALL', key('g', 'apikeys'))
table.insert(out, 1, int(now()))
table.insert(out, 1, version)
return out
