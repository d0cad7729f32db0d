-- Removing a job as if it had never been sent.

-- withdraw removes a waiting job without a history entry, as ComfyUI does.
local function withdraw(j, tombstone)
  unwait(j)
  return_place(j)
  vanish(j, tombstone)
end

-- unname gives the id of a withdrawn job back to the older job that had it.
local function unname(j)
  if redis.call('HGET', key('q', 'ids', j.tenant), j.id) ~= j.key then
    return
  end
  local older = redis.call('HGET', key('q', 'entries', j.tenant), j.id)
  if older then
    write('HSET', key('q', 'ids', j.tenant), j.id, older)
  else
    write('HDEL', key('q', 'ids', j.tenant), j.id)
  end
end

-- bury removes a tombstone, or the end of a part that nobody has taken. An older job with the same id can be found again.
local function bury(k)
  write('ZREM', key('q', 'tombs'), k)
  local j = get(k)
  if not j or j.gone ~= '1' and not j.result then
    return
  end
  unname(j)
  write('DEL', job_key(k))
  stay_gone(k)
end
