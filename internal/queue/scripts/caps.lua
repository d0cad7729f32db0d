-- What a tenant may use at once and within a day. A run takes one of its tenant's seats, and its
-- time counts toward the hour in which it ends. Both are kept only for tenants that have a limit.
--
-- q:seats:TENANT has the jobs that are seated, q:spent:TENANT the milliseconds of each hour, and
-- q:capped the tenants that were at a limit, with the time until which that is believed without
-- another look: after that a claim decides again.

-- BELIEVED is how long a claim is not tried again; HOUR and DAY are in milliseconds.
local BELIEVED, HOUR, DAY = 5000, 3600000, 86400000

-- stops returns what the operator has paused, as a set.
local function stops()
  local set = {}
  for _, stop in ipairs(redis.call('SMEMBERS', key('q', 'stops'))) do
    set[stop] = true
  end
  return set
end

-- capped returns the tenants that may begin nothing now, as a set, and the milliseconds until the
-- first of them may again, as far as that depends on time.
local function capped(stopped)
  local set, first = {}, 0
  for stop in pairs(stopped) do
    local tenant = string.match(stop, '^tenant:(.*)$')
    if tenant then
      set[tenant] = true
    end
  end
  local list = redis.call('ZRANGEBYSCORE', key('q', 'capped'), '(' .. int(now()), '+inf', 'WITHSCORES')
  for i = 1, #list, 2 do
    set[list[i]] = true
    if i == 1 then
      first = tonumber(list[2]) - now()
    end
  end
  return set, first
end

-- spent returns the milliseconds that a tenant has used within a day, and in how many milliseconds
-- that will be below a bound.
local function spent(tenant, bound)
  local fields = redis.call('HGETALL', key('q', 'spent', tenant))
  local hours, sum = {}, 0
  for i = 1, #fields, 2 do
    local hour, ms = tonumber(fields[i]), tonumber(fields[i + 1])
    if (hour + 1) * HOUR + DAY > now() then
      hours[#hours + 1] = {hour, ms}
      sum = sum + ms
    end
  end
  table.sort(hours, function(a, b) return a[1] < b[1] end)
  local left, wait = sum, 0
  for _, h in ipairs(hours) do
    if left < bound then
      break
    end
    left, wait = left - h[2], (h[1] + 1) * HOUR + DAY - now()
  end
  return sum, wait
end

-- spend counts the time of a run.
local function spend(tenant, ms)
  local all, hour = key('q', 'spent', tenant), math.floor(now() / HOUR)
  if write('HINCRBY', all, int(hour), int(ms)) == ms then -- the first one in its hour
    for _, old in ipairs(redis.call('HKEYS', all)) do
      if (tonumber(old) + 1) * HOUR + DAY <= now() then
        write('HDEL', all, old)
      end
    end
    expire(all, now() + DAY + HOUR)
  end
end

-- may_begin reports whether a tenant may begin another run, given how many may run at
-- once and how many milliseconds it may use in a day; '0' for no limit.
local function may_begin(tenant, seats, daily)
  local wait
  local all = key('q', 'seats', tenant)
  if seats ~= '0' and redis.call('SCARD', all) >= tonumber(seats) then
    -- Whatever a hub of a version without limits has ended still has its seat.
    for _, k in ipairs(redis.call('SMEMBERS', all)) do
      local f = redis.call('HMGET', key('q', 'job', k), 'state', 'released')
      if not (f[1] == 'leased' or f[1] == 'running') or f[2] == '1' then
        write('SREM', all, k)
      end
    end
    if redis.call('SCARD', all) >= tonumber(seats) then
      wait = BELIEVED
    end
  end
  if not wait and daily ~= '0' then
    local sum, till = spent(tenant, tonumber(daily))
    if sum >= tonumber(daily) then
      wait = math.max(math.min(till, BELIEVED), 1)
    end
  end
  if wait then
    write('ZREMRANGEBYSCORE', key('q', 'capped'), '-inf', int(now()))
    write('ZADD', key('q', 'capped'), int(now() + wait), tenant)
  end
  return not wait
end

-- rate_wait returns in how many milliseconds a tenant may post another prompt, 0 for now, and what
-- to remember if it does. gap is the average time between two prompts, in microseconds. A minute's
-- worth may arrive at once: what is remembered is when the prompts so far would all have arrived at
-- that pace.
local function rate_wait(tenant, gap)
  local clock = now() * 1000
  local till = math.max(tonumber(redis.call('GET', key('q', 'rate', tenant)) or '0'), clock) + gap
  return math.max(math.ceil((till - clock - 60000000) / 1000), 0), till
end

-- sit and stand take and free a run's seat.
local function sit(tenant, k)
  write('SADD', key('q', 'seats', tenant), k)
end

local function stand(tenant, k)
  write('SREM', key('q', 'seats', tenant), k)
  write('ZREM', key('q', 'capped'), tenant)
end
