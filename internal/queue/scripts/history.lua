-- The history: functions shared by scripts that end jobs or drop entries.

local function undelivered(j)
  return key('q', 'undelivered', pack(j.tenant, j.client))
end

-- tally counts what a tenant has in the history, so that the tenant with the most is found quickly
-- (zsets: tenant -> entries, tenant -> bytes). bytes is the change. A job whose bytes were added
-- has the field shared: an older hub adds none, and recount.lua catches up.
local function tally(tenant, bytes)
  local n = redis.call('ZCARD', key('q', 'history', tenant))
  if n == 0 then
    write('ZREM', key('q', 'shares', 'entries'), tenant)
    write('ZREM', key('q', 'shares', 'bytes'), tenant)
    return
  end
  write('ZADD', key('q', 'shares', 'entries'), int(n), tenant)
  write('ZINCRBY', key('q', 'shares', 'bytes'), int(bytes), tenant)
end

local function shared(j)
  return j.shared == '1'
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
  if j.result and redis.call('HGET', key('q', 'results', j.tenant), j.result) == j.key then
    write('HDEL', key('q', 'results', j.tenant), j.result)
  end
  if j.client ~= '' then
    write('ZREM', undelivered(j), j.key)
  end
  local size = tonumber(j.size or '0')
  write('HINCRBY', key('q', 'counters'), 'bytes', int(0 - size))
  tally(j.tenant, shared(j) and 0 - size or 0)
  write('DEL', key('q', 'entry', j.key), job_key(j.key))
end

-- drop removes an entry. The tenant is needed if the job's record is lost.
local function drop(k, tenant)
  local j = get(k)
  if j then
    forget(j)
    return
  end
  write('ZREM', key('q', 'history'), k)
  if tenant then
    write('ZREM', key('q', 'history', tenant), k)
    tally(tenant, 0)
  end
end

-- raise gives a job that ended after a younger one of its tenant a number in the history above all
-- that have ended. A single ComfyUI ends jobs in the order of their numbers, and its older web UI
-- only looks for numbers higher than those it shows. Numbers chosen by clients, and those of the
-- front, stay.
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

-- finish ends a job and writes its history entry. An existing entry with the same id is replaced
-- and keeps its place, as in ComfyUI.
local function finish(j, state, entry, summary, reason)
  if j.parent then
    if outlives(j) then
      vanish(j)
    else
      end_part(j, state, entry, reason)
    end
    return
  end
  bill(j.tenant, state, 1)
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
  set(j, 'shared', '1')
  tally(j.tenant, #entry)
  if j.client ~= '' and not j.was_listed then -- who has taken a job back waits for no message
    write('ZADD', undelivered(j), turn, j.key)
  end
  call_back(j, state)
  tell('ended', j)
end

-- shows reports whether the end of a job that was taken back while it ran belongs in the history,
-- and makes it visible: a listing had shown that it runs. It never takes the place of another job
-- of its id.
local function shows(j)
  if not j.was_listed or redis.call('HGET', key('q', 'ids', j.tenant), j.id) ~= j.key or
    redis.call('HEXISTS', key('q', 'entries', j.tenant), j.id) == 1 then
    return false
  end
  write('HDEL', job_key(j.key), 'withdrawn')
  j.withdrawn = nil
  return true
end

-- used records the end of a job as the last use of its files: starting at first, ARGV has the
-- number of indexes (zsets: file -> last use), their keys, and the members of each. A member that
-- was removed from an index stays out.
local function used(first)
  local members = first + 1 + tonumber(ARGV[first] or '0')
  for n = first + 1, members - 1 do
    for i = members, #ARGV do
      write('ZADD', ARGV[n], 'XX', int(now()), ARGV[i])
    end
  end
end

-- oldest returns the entry of a tenant that ended first, except one to spare. An entry that
-- replaced another is younger than its place suggests, so the first few places are compared.
local function oldest(tenant, spare)
  local found, first
  for _, k in ipairs(redis.call('ZRANGE', key('q', 'history', tenant), '0', '15')) do
    local turn = tonumber(redis.call('ZSCORE', key('q', 'history'), k) or '0')
    if k ~= spare and (not found or turn < first) then
      found, first = k, turn
    end
  end
  return found
end

-- surplus returns an entry to drop now that j has ended, and its tenant. A tenant over its own
-- bound loses one of its own entries. If the total bound is exceeded, the tenant with the most
-- loses one: nobody below a fair share ever pays for somebody above. The entry of j stays, or its
-- client could never read it.
local function surplus(j, max_entries, max_bytes, max_own)
  if redis.call('ZCARD', key('q', 'history', j.tenant)) > max_own then
    return oldest(j.tenant, j.key), j.tenant
  end
  local n = redis.call('ZCARD', key('q', 'history'))
  local bytes = tonumber(redis.call('HGET', key('q', 'counters'), 'bytes') or '0')
  if n <= max_entries and bytes <= max_bytes then
    return nil
  end
  local by = n > max_entries and 'entries' or 'bytes'
  local top = redis.call('ZREVRANGE', key('q', 'shares', by), '0', '1', 'WITHSCORES')
  if #top == 0 then
    return nil
  end
  local k, tenant = oldest(top[1], j.key), top[1]
  if not k and #top == 4 and tonumber(top[4]) == tonumber(top[2]) then
    k, tenant = oldest(top[3], j.key), top[3]
  end
  return k, tenant
end

-- trim drops entries beyond the bounds, a few at a time; the next end drops more.
local function trim(j, max_entries, max_bytes, max_own)
  for _ = 1, 16 do
    local k, tenant = surplus(j, tonumber(max_entries), tonumber(max_bytes), tonumber(max_own))
    if not k then
      return
    end
    drop(k, tenant)
  end
end
