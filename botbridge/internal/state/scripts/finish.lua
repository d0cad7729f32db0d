-- Saves a request that has ended, and settles with its user.
-- ARGV: term, id, version, document, ms to keep, who, day, change of what was
-- spent, command, ms that the run took, outcome
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
write('PEXPIREAT', request, int(now() + tonumber(ARGV[5])))
if write('ZREM', key('active'), ARGV[2]) == 1 then
  write('ZREM', key('live', ARGV[6]), ARGV[2])
  local spent, change = key('spent', ARGV[7], ARGV[6]), tonumber(ARGV[8])
  if change ~= 0 and redis.call('EXISTS', spent) == 1 or change > 0 then
    write('INCRBY', spent, int(change))
    write('PEXPIREAT', spent, int(now() + 3 * 86400000))
  end
  if tonumber(ARGV[10]) > 0 then
    local took = key('took', ARGV[9])
    write('LPUSH', took, ARGV[10])
    write('LTRIM', took, '0', '49')
  end
  local counts = key('counts', ARGV[7])
  write('HINCRBY', counts, ARGV[11], '1')
  write('PEXPIREAT', counts, int(now() + 3 * 86400000))
end
return {'ok', next}
