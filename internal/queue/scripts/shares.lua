-- Whose turn it is. Tenants share the instances: each has a start tag, the virtual time in
-- milliseconds at which its next job is due. A run adds what it costs, divided by the tenant's
-- weight. The tenant with the lowest tag comes first, so that over time everybody gets their share;
-- a tenant with nothing waiting saves nothing up.
--
-- Within a tenant, the callers take turns in the same way, by numbers of jobs. Their tags are parts
-- of the ranks: a job has its place from the start.
--
-- q:tags has the tags that matter, q:tenants those of tenants with waiting jobs. There is one such
-- index per band, see bands.lua: the names of its keys end in the mark of the band.

-- LAG is how far a tenant may be behind the others, in milliseconds. A tenant that waited for
-- instances that others could not use must not take all the others for just as long.
local LAG = 120000

-- COST is what a run is assumed to take before any has been measured, MOST the largest cost: a tag
-- is a whole number below 2^53.
local COST, MOST = 10000, 1e10

-- virtual is the start tag of a band's run that was given out last.
local function virtual(band)
  return tonumber(redis.call('HGET', key('q', 'counters'), 'virtual' .. band) or '0')
end

local function retag(band, tenant, tag)
  write('ZADD', key('q', 'tags' .. band), int(tag), tenant)
  write('ZADD', key('q', 'tenants' .. band), 'XX', int(tag), tenant)
end

-- indexed counts the entries of the index, so that the sweep notices what a hub of a version
-- without it has added or removed.
local function indexed(n)
  write('HINCRBY', key('q', 'counters'), 'indexed', int(n))
end

-- index adds a job to its tenant's waiting ones.
local function index(j)
  local band = band_of(j.rank)
  local waits = key('q', 'waits' .. band, j.tenant)
  indexed(write('ZADD', waits, '0', j.rank))
  write('ZADD', key('q', 'wait' .. band, j.class, j.tenant), '0', j.rank)
  write('SADD', key('q', 'classes' .. band, j.tenant), j.class)
  if not redis.call('ZSCORE', key('q', 'tenants' .. band), j.tenant) then
    -- A tenant that had nothing waiting joins at the current time of all others.
    local tag = tonumber(redis.call('ZSCORE', key('q', 'tags' .. band), j.tenant) or '0')
    tag = math.max(tag, virtual(band))
    write('ZADD', key('q', 'tags' .. band), int(tag), j.tenant)
    write('ZADD', key('q', 'tenants' .. band), int(tag), j.tenant)
  end
end

local function unindex(j)
  local band = band_of(j.rank)
  local waits, own = key('q', 'waits' .. band, j.tenant), key('q', 'wait' .. band, j.class, j.tenant)
  indexed(0 - write('ZREM', waits, j.rank))
  write('ZREM', own, j.rank)
  if redis.call('EXISTS', own) == 0 then
    write('SREM', key('q', 'classes' .. band, j.tenant), j.class)
  end
  if redis.call('EXISTS', waits) == 0 then
    write('ZREM', key('q', 'tenants' .. band), j.tenant)
  end
end

-- charge makes a tenant pay for a run that is beginning, in milliseconds over its weight.
local function charge(j, cost)
  local band, tenant = band_of(j.rank), j.tenant
  local at = virtual(band)
  local tag = tonumber(redis.call('ZSCORE', key('q', 'tags' .. band), tenant) or int(at))
  tag = math.max(tag, at - LAG)
  -- It grows with every run, so that a tenant that joins never comes before one that has been
  -- waiting.
  local to = math.max(tag, at + 1)
  write('HSET', key('q', 'counters'), 'virtual' .. band, int(to))
  -- These rejoin at virtual() when they have jobs again.
  write('ZREMRANGEBYSCORE', key('q', 'tags' .. band), '-inf', int(to - LAG - 1))
  retag(band, tenant, tag + cost)
  write('HSET', key('q', 'costs' .. band), tenant, int(cost))
end

-- refund changes a tenant's tag once the actual cost of a run is known.
local function refund(j, cost)
  local band = band_of(j.rank)
  local tag = redis.call('ZSCORE', key('q', 'tags' .. band), j.tenant)
  if tag and cost ~= 0 then
    retag(band, j.tenant, tonumber(tag) - cost)
  end
end

-- step returns what the next run of a tenant is assumed to cost.
local function step(band, tenant)
  return math.max(tonumber(redis.call('HGET', key('q', 'costs' .. band), tenant) or '0'), 1)
end

-- Places are numbers with one decimal. A caller's next job is one place behind its last one. A
-- caller that joins goes half a place behind what was given out last: before the next jobs of those
-- who have many, but a client that makes up a new name for each prompt moves the others back no
-- further than that.
local HALF = 0.5

local function place_text(place)
  return string.format('%.1f', place)
end

-- next_place returns the place of a caller's next job. number is ComfyUI's; with only one caller, a
-- tenant's places are the same as these numbers.
local function next_place(band, tenant, caller, number)
  local place
  local now = tonumber(redis.call('HGET', key('q', 'turns' .. band), tenant) or '')
  if now then
    local last = redis.call('ZSCORE', key('q', 'callers' .. band, tenant), caller)
    place = math.max(last and tonumber(last) + 1 or 0, now + HALF)
  else
    place = number
    write('HSET', key('q', 'turns' .. band), tenant, place_text(place - HALF))
  end
  write('ZADD', key('q', 'callers' .. band, tenant), place_text(place), caller)
  return place
end

-- return_place takes back the place of a job that leaves without a run. A client that posts and
-- cancels leaves nothing behind, and gains nothing.
local function return_place(j)
  local band = band_of(j.rank)
  local callers = key('q', 'callers' .. band, j.tenant)
  local last = j.place and redis.call('ZSCORE', callers, j.caller)
  if not last or tonumber(last) ~= tonumber(j.place) then
    return
  end
  local before = tonumber(last) - 1
  if before <= tonumber(redis.call('HGET', key('q', 'turns' .. band), j.tenant) or '0') - HALF then
    write('ZREM', callers, j.caller)
  else
    write('ZADD', callers, place_text(before), j.caller)
  end
end

-- keep_place restores a place that was given out once.
local function keep_place(j)
  local band, turns, place = band_of(j.rank), key('q', 'turns' .. band_of(j.rank)), tonumber(j.place)
  local now = redis.call('HGET', turns, j.tenant)
  if not now or place - HALF < tonumber(now) then
    write('HSET', turns, j.tenant, place_text(place - HALF))
  end
  write('ZADD', key('q', 'callers' .. band, j.tenant), 'GT', j.place, j.caller)
end

-- take_turn notes that the job at a place of its tenant was given out.
local function take_turn(j)
  local band, turns = band_of(j.rank), key('q', 'turns' .. band_of(j.rank))
  local now = redis.call('HGET', turns, j.tenant)
  if now and tonumber(j.place) > tonumber(now) then
    write('HSET', turns, j.tenant, j.place)
    -- These rejoin like new ones.
    write('ZREMRANGEBYSCORE', key('q', 'callers' .. band, j.tenant), '-inf', place_text(tonumber(j.place) - HALF))
  end
end

-- end_turns forgets the places and costs of a tenant that has no jobs.
local function end_turns(tenant)
  local callers = {}
  for i, band in ipairs(BANDS) do
    write('HDEL', key('q', 'turns' .. band), tenant)
    write('HDEL', key('q', 'costs' .. band), tenant)
    callers[i] = key('q', 'callers' .. band, tenant)
  end
  write('DEL', unpack(callers))
end
