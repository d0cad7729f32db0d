-- Hands runs whose lease has ended to a hub, removes old tombstones, and repairs what older hubs
-- have left behind: shares and index of the waiting jobs.
--
-- ARGV[1] hub
-- ARGV[2] lease in milliseconds
-- ARGV[3] bound of runs
--
-- Output: {'ok', run, run, ...}; run is what orphan() gives

-- recount recomputes the shares of the waiting jobs. They are wrong after an upgrade from a version
-- that did not count, and while a hub of such a version shares this Redis. It runs at most every
-- ten seconds, because it reads all live jobs.
local function recount()
  if share('waiting_jobs', '') == redis.call('ZCARD', key('q', 'waiting')) + redis.call('ZCARD', key('q', 'paused')) -
    redis.call('ZCARD', key('q', 'parts')) then
    return
  end
  local last = redis.call('HGET', key('q', 'counters'), 'recounted')
  if last and now() - tonumber(last) < 10000 then
    return
  end
  write('HSET', key('q', 'counters'), 'recounted', int(now()))
  write('DEL', key('q', 'waiting_jobs'), key('q', 'waiting_bytes'))
  for _, rank in ipairs(redis.call('ZRANGE', key('q', 'live'), 0, -1)) do
    local k = key_of(rank)
    local f = redis.call('HMGET', job_key(k), 'state', 'tenant', 'counted', 'weight')
    local j = {key = k, tenant = f[2], weight = f[4] or nil}
    if f[1] == 'queued' then
      count(j)
    elseif f[3] and f[3] ~= '' then
      set(j, 'counted', '')
    end
  end
end

-- misindexed reports whether the index of the waiting jobs is wrong because a hub of a version
-- without it has added or removed some. It compares the numbers, and looks up the first few jobs.
local function misindexed()
  local n = tonumber(redis.call('HGET', key('q', 'counters'), 'indexed') or '0')
  if n ~= redis.call('ZCARD', key('q', 'waiting')) then
    return true
  end
  for _, rank in ipairs(redis.call('ZRANGE', key('q', 'waiting'), '0', '15')) do
    local tenant = redis.call('HGET', job_key(key_of(rank)), 'tenant')
    if tenant and not redis.call('ZSCORE', key('q', 'waits' .. band_of(rank), tenant), rank) then
      return true
    end
  end
  return false
end

-- reindex rebuilds the index of the waiting jobs. It runs at most every two seconds, because it
-- reads all live jobs.
local function reindex()
  local last = redis.call('HGET', key('q', 'counters'), 'reindexed')
  if not misindexed() or last and now() - tonumber(last) < 2000 then
    return
  end
  for _, band in ipairs(BANDS) do
    for _, tenant in ipairs(redis.call('ZRANGE', key('q', 'tenants' .. band), '0', '-1')) do
      for _, class in ipairs(redis.call('SMEMBERS', key('q', 'classes' .. band, tenant))) do
        write('DEL', key('q', 'wait' .. band, class, tenant))
      end
      write('DEL', key('q', 'classes' .. band, tenant), key('q', 'waits' .. band, tenant))
    end
    write('DEL', key('q', 'tenants' .. band))
  end
  write('HSET', key('q', 'counters'), 'indexed', '0', 'reindexed', int(now()))
  local ranks = redis.call('ZRANGE', key('q', 'live'), '0', '-1')
  for _, rank in ipairs(redis.call('ZRANGE', key('q', 'parts'), '0', '-1')) do
    ranks[#ranks + 1] = rank
  end
  for _, rank in ipairs(ranks) do
    local f = redis.call('HMGET', job_key(key_of(rank)), 'state', 'tenant', 'class', 'paused')
    if f[1] == 'queued' and f[4] ~= '1' then
      index({rank = rank, tenant = f[2], class = f[3]})
    end
  end
end

local out = {'ok'}
recount()
reindex()
for _, k in ipairs(redis.call('ZRANGEBYSCORE', key('q', 'tombs'), '-inf', int(now()), 'LIMIT', '0', '100')) do
  bury(k)
end
-- A part that ended while Redis had lost its job stayed. Its job may have ended since then, made as a whole
-- by a hub that did not know of any part. The ends of parts stay longest, so they are the last ones.
for _, k in ipairs(redis.call('ZREVRANGE', key('q', 'tombs'), '0', '99')) do
  local parent = redis.call('HGET', job_key(k), 'parent')
  if parent and parent ~= '' and outlives({parent = parent}) then
    bury(k)
  end
end
local last = redis.call('HGET', key('q', 'counters'), 'swept')
write('HSET', key('q', 'counters'), 'swept', int(now()))
-- If nobody has swept for that long, Redis was probably unavailable and no holder could renew, or
-- its clock was set forward: holders get time to do so now, once. A holder renews three times per
-- lease, so no smaller step can end the lease of a living one.
local away = last and now() - tonumber(last) > tonumber(ARGV[2]) * 2 / 3
local ended = redis.call('ZRANGEBYSCORE', key('q', 'leases'), '-inf', int(now()), 'LIMIT', '0', away and '-1' or ARGV[3])
for _, k in ipairs(ended) do
  local j = get(k)
  if not j or not runs(j) then
    write('ZREM', key('q', 'leases'), k)
  elseif away and j.grace ~= j.fence then
    local till = int(now() + tonumber(ARGV[2]))
    set(j, 'grace', j.fence, renewed(j, till))
    write('ZADD', key('q', 'leases'), till, k)
  else
    hold(j, ARGV[1], ARGV[2])
    orphan(out, j)
  end
end
return out
