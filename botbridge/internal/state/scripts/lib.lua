-- deposed tells whether another process has taken over since the caller
-- became the one that acts. Term 0 is of a process that never did: it may only
-- admit.
local function deposed(term)
  return redis.call('GET', key('term')) ~= term
end

-- keep_day keeps what is counted on a day for as long as it is shown.
local function keep_day(name)
  write('PEXPIREAT', name, int(now() + 35 * 86400000))
end

-- enlist notes that somebody waits for a request. Of two that come within a millisecond, the
-- later one is the later one.
local function enlist(who, id)
  write('ZADD', key('active'), int(now()), id)
  local live = key('live', who)
  local last = redis.call('ZREVRANGE', live, '0', '0', 'WITHSCORES')[2]
  write('ZADD', live, int(math.max(now(), tonumber(last or '0') + 1)), id)
end

-- replace saves a request that nobody has changed since it was read, and gives
-- the reply; fresh is true when it was saved now. A document that is already
-- what follows the version known to its writer was saved before, and the answer
-- was lost.
local function replace(term, id, known, doc)
  if deposed(term) then
    return {'deposed'}
  end
  local request = key('request', id)
  local version = redis.call('HGET', request, 'v')
  if not version then
    return {'absent'}
  end
  local next = int(tonumber(known) + 1)
  if version == next and redis.call('HGET', request, 'doc') == doc then
    return {'ok', next}
  end
  if version ~= known then
    return {'stale'}
  end
  write('HSET', request, 'v', next, 'doc', doc)
  return {'ok', next}, true
end
