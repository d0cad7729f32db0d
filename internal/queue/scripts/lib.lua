-- Functions shared by all scripts of the queue. keys.go lists the keys.
--
-- A job's record is the hash q:job:<key>. Scripts set single fields and never write all of it: a
-- newer hub may have added fields that this one does not know.

local function job_key(k)
  return key('q', 'job', k)
end

-- key_of returns the key at the end of a rank, after whatever rank.lua and enqueue.lua put before
-- it. Patterns would take most of the time when looking at many jobs.
local function key_of(rank)
  return string.sub(rank, (string.find(rank, ':', 38, true) or 0) + 1)
end

-- get returns a job's record as a table with its key as j.key, or nil.
local function get(k)
  local flat = redis.call('HGETALL', job_key(k))
  if #flat == 0 then
    return nil
  end
  local j = {key = k}
  for i = 1, #flat, 2 do
    j[flat[i]] = flat[i + 1]
  end
  return j
end

-- set changes fields of a job, in Redis and in the table.
local function set(j, ...)
  local fields = {...}
  for i = 1, #fields, 2 do
    j[fields[i]] = fields[i + 1]
  end
  write('HSET', job_key(j.key), unpack(fields))
end

-- answer returns a reply with a code and a job's current record.
local function answer(code, k)
  local out = redis.call('HGETALL', job_key(k))
  table.insert(out, 1, code)
  return out
end

-- record is answer for a job whose record the script has read and has only changed with set().
local function record(code, j)
  local out = {code}
  for field, value in pairs(j) do
    if field ~= 'key' then
      out[#out + 1] = field
      out[#out + 1] = value
    end
  end
  return out
end

-- PART_TELLS are the kinds of hints about a part of a job: nobody but the hubs hears of it. Its end
-- is a hint about the job.
local PART_TELLS = {queued = 'asked', withdrawn = 'cancel', ended = 'part'}

-- tell sends a hint to all hubs and returns how many get it; see events.go.
local function tell(kind, j)
  local k = j.key
  if j.parent then
    kind = PART_TELLS[kind] or kind
    k = kind == 'part' and j.parent or k
  end
  return redis.call('PUBLISH', key('q', 'events'),
    pack(kind, k, j.id, j.tenant, j.caller, j.client, j.instance or '', j.hub or '', j.state, j.class or '', j.shape or ''))
end

-- at_door reports whether the client that posted a job has no answer yet, so that an instance's
-- refusal can still be that answer.
local function at_door(j)
  return j.door and j.door ~= '' and tonumber(j.door) > now()
end

-- tell_waits announces that a job is waiting. Until the client has its answer, the job changes no
-- count that a client may see: it may still be refused.
local function tell_waits(j)
  tell(at_door(j) and 'asked' or 'queued', j)
end

-- add changes a share of the waiting jobs: a tenant's, or everybody's for ''. A share of zero is
-- removed, so that tenants without jobs take no space.
local function add(share, tenant, n)
  if write('HINCRBY', key('q', share), tenant, int(n)) <= 0 then
    write('HDEL', key('q', share), tenant)
  end
end

-- share returns what add has counted.
local function share(name, tenant)
  return tonumber(redis.call('HGET', key('q', name), tenant) or '0')
end

-- count adds a waiting job to the shares; uncount removes it again. The record says what was added
-- for a job, so that nothing is added or removed twice, even if a hub of a version that does not
-- count had the job in between. recount() in sweep.lua repairs what such a hub has left behind.
local function count(j)
  if j.parent then
    return -- it is no job that anybody has posted
  end
  if j.counted and j.counted ~= '' then
    return
  end
  -- A version that did not count recorded no weight.
  local bytes = tonumber(j.weight or '0')
  if bytes == 0 then
    bytes = redis.call('STRLEN', key('q', 'body', j.key)) + redis.call('STRLEN', key('q', 'secret', j.key))
  end
  set(j, 'counted', int(bytes))
  for _, tenant in ipairs({'', j.tenant}) do
    add('waiting_jobs', tenant, 1)
    add('waiting_bytes', tenant, bytes)
  end
end

local function uncount(j)
  if not j.counted or j.counted == '' then
    return
  end
  local bytes = tonumber(j.counted)
  set(j, 'counted', '')
  for _, tenant in ipairs({'', j.tenant}) do
    add('waiting_jobs', tenant, -1)
    add('waiting_bytes', tenant, 0 - bytes)
  end
end

-- wait adds a job to the waiting ones; unwait removes it. A paused job counts, but it is in no
-- index, so it is not given out and delays nobody.
local function wait(j)
  if j.paused == '1' then
    write('ZADD', key('q', 'paused'), '0', j.rank)
    count(j)
    return
  end
  write('ZADD', key('q', 'waiting'), '0', j.rank)
  if j.parent then
    write('ZADD', key('q', 'parts'), '0', j.rank)
  end
  write('ZADD', key('q', 'wait', j.class), '0', j.rank)
  write('SADD', key('q', 'classes'), j.class)
  index(j)
  count(j)
end

local function unwait(j)
  if j.paused == '1' then
    write('ZREM', key('q', 'paused'), j.rank)
  end
  write('ZREM', key('q', 'waiting'), j.rank)
  if j.parent then
    write('ZREM', key('q', 'parts'), j.rank)
  end
  write('ZREM', key('q', 'wait', j.class), j.rank)
  if redis.call('EXISTS', key('q', 'wait', j.class)) == 0 then
    write('SREM', key('q', 'classes'), j.class)
  end
  unindex(j)
  uncount(j)
end

-- list adds a job to the live ones; unlist removes it. A part of a job is never listed.
local function list(j)
  if j.parent then
    return
  end
  write('ZADD', key('q', 'live'), '0', j.rank)
  write('ZADD', key('q', 'live', j.tenant), '0', j.rank)
  write('ZADD', key('q', 'caller', j.caller), '0', j.rank)
end

local function unlist(j)
  write('ZREM', key('q', 'live'), j.rank)
  write('ZREM', key('q', 'live', j.tenant), j.rank)
  write('ZREM', key('q', 'caller', j.caller), j.rank)
end

-- end_parts, below, ends the parts of a job: nobody wants them any more.
local end_parts

-- leave removes everything that is kept only for live jobs.
local function leave(j)
  if j.parts then
    end_parts(j)
  end
  unlist(j)
  uncount(j)
  if write('HINCRBY', key('q', 'class', j.class), 'live', '-1') <= 0 then
    write('DEL', key('q', 'class', j.class))
  end
  write('DEL', key('q', 'body', j.key), key('q', 'secret', j.key))
  if redis.call('EXISTS', key('q', 'live', j.tenant)) == 0 then
    end_turns(j.tenant)
  end
end

-- stay_gone keeps a hub that still has a copy of a removed job from putting it
-- back, see restore.lua.
local function stay_gone(k)
  write('SET', key('q', 'forgotten', k), '1')
  expire(key('q', 'forgotten', k), now() + 1800000)
end

-- runs reports whether a job is assigned to an instance.
local function runs(j)
  return j.state == 'leased' or j.state == 'running'
end

-- is_over reports whether a job neither waits nor runs.
local function is_over(j)
  return j.state ~= 'queued' and not runs(j)
end

-- is_ahead reports whether a job is waiting at an instance behind its current run. To its client it
-- is still waiting.
local function is_ahead(j)
  return j.state == 'leased' and j.ahead == '1'
end

-- held returns the job of a run if the fence is the current one, else nil.
local function held(k, fence)
  local j = get(k)
  if j and runs(j) and j.fence == fence then
    return j
  end
  return nil
end

-- next_fence returns a fence above all that this job ever had, even if a failover lost the latest
-- ones: it is not below the clock.
local function next_fence(j)
  return int(math.max(tonumber(j.fence) + 1, now()))
end

-- WATCHED is the most of a run's time that counts in one go, in milliseconds: holders renew every
-- few seconds. Anything more means that the clock was set forward or that nobody was looking.
local WATCHED = 15000

-- ran_so_far returns how many milliseconds a run has taken, nil if nobody has recorded any because
-- a hub of an older version began it.
local function ran_so_far(j)
  local ms, at = string.match(j.ran or '', '^(%d+) (%d+)$')
  return ms and tonumber(ms) + math.min(math.max(now() - tonumber(at), 0), WATCHED)
end

-- note_ran returns the value to store as a run's 'ran'.
local function note_ran(ms)
  return int(ms) .. ' ' .. int(now())
end

-- renewed returns the fields of a run whose lease now lasts until till.
local function renewed(j, till)
  local ran = ran_so_far(j)
  return 'lease', till, 'ran', ran and note_ran(ran) or ''
end

-- hold assigns a run to a hub for the duration of a lease.
local function hold(j, hub, lease)
  local till = int(now() + tonumber(lease))
  set(j, 'fence', next_fence(j), 'hub', hub, renewed(j, till))
  write('ZADD', key('q', 'leases'), till, j.key)
end

-- lost has the keys of lost runs: nobody is billed for them.
local lost = {}

-- settle charges a tenant what a run has actually taken: nothing if it was lost.
local function settle(j, took)
  if took <= 0 then
    lost[j.key] = true
  elseif not lost[j.key] then
    bill(j.tenant, 'ms', took)
  end
  if j.seat == '1' then
    stand(j.tenant, j.key)
    set(j, 'seat', '')
  end
  if j.metered == '1' then
    if took > 0 then
      spend(j.tenant, took)
    end
    set(j, 'metered', '')
  end
  if j.charged and j.charged ~= '' then
    refund(j, tonumber(j.charged) - math.min(math.max(took / tonumber(j.share), 0), MOST))
    set(j, 'charged', '')
  end
end

-- free releases the instance of a run. Nobody is billed for more than most, the milliseconds that
-- its holder has measured; if that is '', for no more than its holders were seen to have it. 'told '
-- with milliseconds is what its instance says: that is believed if it is longer, as nobody may have
-- been looking, but never for longer than since the claim.
local function free(j, most)
  if j.released == '1' then
    return
  end
  -- Nobody is billed for a run if it is not known when it began.
  local began = tonumber(j.claimed)
  local took = began and math.max(now() - began, 0) or 0
  local seen, told = ran_so_far(j) or took, string.match(most or '', '^told (%d+)$')
  settle(j, math.min(took, tonumber(most or '') or math.max(seen, tonumber(told or '0'))))
  set(j, 'released', '1')
  if redis.call('HGET', key('q', 'instances'), j.instance) == j.key then
    write('HDEL', key('q', 'instances'), j.instance)
  end
  tell('freed', j)
end

-- let_go ends the lease of a run and frees its instance.
local function let_go(j, most)
  free(j, most)
  write('ZREM', key('q', 'leases'), j.key)
  set(j, 'lease', '0')
end

-- vanish removes a live job without a history entry. A tombstone stays for a while, so that Get can
-- report what happened to the job.
local function vanish(j, tombstone)
  leave(j)
  if j.parent then
    write('DEL', job_key(j.key))
    stay_gone(j.key)
    return
  end
  set(j, 'state', 'cancelled', 'finished', int(now()), 'gone', '1')
  write('ZADD', key('q', 'tombs'), int(now() + tonumber(tombstone)), j.key)
  call_back(j, 'cancelled')
  tell('ended', j)
end

-- take_back asks the holder of a run to end it. From now on no listing shows the job, and its end
-- leaves no entry.
local function take_back(j, tombstone)
  set(j, 'cancel', int(now()), 'withdrawn', tombstone)
  unlist(j)
  tell('withdrawn', j)
end

end_parts = function(j)
  for k in string.gmatch(j.parts, '[^ ]+') do
    local p = get(k)
    if p and p.state == 'queued' then
      unwait(p)
      vanish(p)
    elseif p and runs(p) and not p.withdrawn then
      take_back(p, '1')
    elseif not p or not runs(p) then
      write('ZREM', key('q', 'tombs'), k)
      write('DEL', job_key(k))
      stay_gone(k) -- a part that Redis has lost, too
    end
  end
end

-- outlives reports whether a part's job has ended, or is made as a whole: Redis has lost that the part
-- was taken back, and nobody takes what it has made. A job that is not there may be lost, too: its hub
-- brings it back, and takes what its parts have made.
local function outlives(p)
  local whole = get(p.parent)
  return whole and (whole.parts == 'whole' or is_over(whole))
end

-- end_part ends a part of a job. Its record keeps the end until the job has ended, or for a day.
local function end_part(p, state, entry, reason)
  leave(p)
  set(p, 'state', state, 'finished', int(now()), 'reason', reason, 'result', entry)
  write('ZADD', key('q', 'tombs'), int(now() + 86400000), p.key)
  tell('ended', p)
end

-- orphan appends a run to a reply as ORPHAN_FIELDS values; see lease.go.
local function orphan(out, j)
  for _, field in ipairs({'key', 'fence', 'instance', 'hub', 'upstream', 'sid', 'lease', 'state',
                          'released', 'exhausted', 'cancel'}) do
    out[#out + 1] = j[field] or ''
  end
end
