-- Saves a request that has ended, and settles with its user.
-- ARGV: term, id, version, document, ms to keep, who, day, change of what was
-- spent, command, ms that the run took, outcome, step of the wait or '', user in the count
-- of people, group in which it was counted or ''
-- Output: ok, version | stale | absent | deposed
local reply, fresh = replace(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if not fresh then
  return reply
end
-- A favourite, which it may be before all of it has been shown, stays for as long as that.
local keep = math.max(tonumber(ARGV[5]), redis.call('PTTL', key('star_owners', ARGV[2])))
write('PEXPIREAT', key('request', ARGV[2]), int(now() + keep))
if write('ZREM', key('active'), ARGV[2]) == 1 then
  write('ZREM', key('live', ARGV[6]), ARGV[2])
  -- An older bridge has perhaps created it, which did not note whose it is.
  local mine = key('mine', ARGV[6])
  if not redis.call('ZSCORE', mine, ARGV[2]) then
    write('ZADD', mine, int(now()), ARGV[2])
    write('PEXPIREAT', mine, int(now() + 30 * 86400000))
  end
  local spent, change = key('spent', ARGV[7], ARGV[6]), tonumber(ARGV[8])
  if change ~= 0 and redis.call('EXISTS', spent) == 1 or change > 0 then
    write('INCRBY', spent, int(change))
    write('PEXPIREAT', spent, int(now() + 3 * 86400000))
  end
  local groups = key('spent_in', ARGV[7], ARGV[6])
  if ARGV[14] ~= '' and (change > 0 or change < 0 and redis.call('HEXISTS', groups, ARGV[14]) == 1) then
    write('HINCRBY', groups, ARGV[14], int(change))
    write('PEXPIREAT', groups, int(now() + 3 * 86400000))
  end
  if tonumber(ARGV[10]) > 0 then
    local took = key('took', ARGV[9])
    write('LPUSH', took, ARGV[10])
    write('LTRIM', took, '0', '49')
    write('PEXPIREAT', took, int(now() + 90 * 86400000))
  end
  local counts = key('counts', ARGV[7])
  write('HINCRBY', counts, ARGV[11], '1')
  write('HINCRBY', counts, 'command:' .. ARGV[9], '1')
  if ARGV[12] ~= '' then
    write('HINCRBY', counts, 'wait:' .. ARGV[12], '1')
  end
  keep_day(counts)
  local passers = key('passers', ARGV[7])
  if redis.call('SCARD', passers) < 100000 then
    write('SADD', passers, ARGV[13])
    keep_day(passers)
  end
end
return reply
