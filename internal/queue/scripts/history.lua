-- The history: what scripts that end jobs or drop entries share.

local function undelivered(j)
  return key('q', 'undelivered', pack(j.tenant, j.client))
end

-- forget removes an ended job with its entry.
local function forget(j)
  write('ZREM', key('q', 'history'), j.key)
  write('ZREM', key('q', 'history', j.tenant), j.key)
  if redis.call('HGET', key('q', 'entries', j.tenant), j.id) == j.key then
    write('HDEL', key('q', 'entries', j.tenant), j.id)
  end
  if redis.call('HGET', key('q', 'ids', j.tenant), j.id) == j.key then
    write('HDEL', key('q', 'ids', j.tenant), j.id)
  end
  if j.client ~= '' then
    write('ZREM', undelivered(j), j.key)
  end
  write('HINCRBY', key('q', 'counters'), 'bytes', int(0 - tonumber(j.size or '0')))
  write('DEL', key('q', 'entry', j.key), job_key(j.key))
end

-- drop forgets an entry.
local function drop(k)
  local j = get(k)
  if j then
    forget(j)
  else
    write('ZREM', key('q', 'history'), k)
  end
end

-- raise gives a job that ended after a younger one of its tenant a number in
-- the history above all that have ended. One ComfyUI ends jobs in the order of
-- their numbers, and its older web UI looks only for higher ones than it
-- shows. Numbers that clients have chosen, and those of the front, stay.
local function raise(j)
  if not string.find(j.number, '^%d+$') then
    return
  end
  local n = tonumber(j.number)
  local last = tonumber(redis.call('HGET', key('q', 'raised'), j.tenant) or '-1')
  if n <= last then
    n = last + 1
    set(j, 'raised', int(n))
  end
  write('HSET', key('q', 'raised'), j.tenant, int(n))
end

-- finish ends a job and writes its history entry. An entry of the same id
-- that is there already is replaced and keeps its place, as in ComfyUI.
local function finish(j, state, entry, summary, reason)
  leave(j)
  raise(j)
  set(j, 'state', state, 'finished', int(now()), 'reason', reason, 'summary', summary, 'size', int(#entry))
  local place
  local old = redis.call('HGET', key('q', 'entries', j.tenant), j.id)
  if old then
    place = redis.call('ZSCORE', key('q', 'history', j.tenant), old)
    local o = get(old)
    if o then
      forget(o)
    end
    if not redis.call('HGET', key('q', 'ids', j.tenant), j.id) then
      write('HSET', key('q', 'ids', j.tenant), j.id, j.key)
    end
  end
  local turn = int(write('HINCRBY', key('q', 'counters'), 'ends', '1'))
  place = place or turn
  write('ZADD', key('q', 'history'), turn, j.key)
  write('ZADD', key('q', 'history', j.tenant), place, j.key)
  write('HSET', key('q', 'entries', j.tenant), j.id, j.key)
  write('SET', key('q', 'entry', j.key), entry)
  write('HINCRBY', key('q', 'counters'), 'bytes', int(#entry))
  if j.client ~= '' then
    write('ZADD', undelivered(j), turn, j.key)
  end
  tell('ended', j)
end

-- used notes the end of a job as the last use of its files: ARGV from first on
-- are the key of an index (zset: file -> last use) and its members. One that
-- was taken out of the index stays out.
local function used(first)
  for i = first + 1, #ARGV do
    write('ZADD', ARGV[first], 'XX', int(now()), ARGV[i])
  end
end

-- trim drops the oldest entries beyond the bounds. A few at a time: what is
-- left over is the next end's.
local function trim(max_entries, max_bytes)
  for _ = 1, 16 do
    local n = redis.call('ZCARD', key('q', 'history'))
    local bytes = tonumber(redis.call('HGET', key('q', 'counters'), 'bytes') or '0')
    if n <= 1 or (n <= tonumber(max_entries) and bytes <= tonumber(max_bytes)) then
      return
    end
    drop(redis.call('ZRANGE', key('q', 'history'), 0, 0)[1])
  end
end
