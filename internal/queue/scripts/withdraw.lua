-- Removing a job that waits.

-- withdraw takes a waiting job away without a history entry, as ComfyUI does.
-- A tombstone stays for a while, so that Get can say what became of it.
local function withdraw(j, tombstone)
  unwait(j)
  leave(j)
  set(j, 'state', 'cancelled', 'finished', int(now()), 'gone', '1')
  write('ZADD', key('q', 'tombs'), int(now() + tonumber(tombstone)), j.key)
  tell('ended', j)
end

-- bury removes a tombstone. An older job of the same id can be found again.
local function bury(k)
  write('ZREM', key('q', 'tombs'), k)
  local j = get(k)
  if not j or j.gone ~= '1' then
    return
  end
  if redis.call('HGET', key('q', 'ids', j.tenant), j.id) == k then
    local older = redis.call('HGET', key('q', 'entries', j.tenant), j.id)
    if older then
      write('HSET', key('q', 'ids', j.tenant), j.id, older)
    else
      write('HDEL', key('q', 'ids', j.tenant), j.id)
    end
  end
  write('DEL', job_key(k))
end
