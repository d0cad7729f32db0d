-- The order in which waiting jobs are given out.

-- ahead counts the jobs that will be given out before a waiting one if nothing
-- changes; nil if it does not wait. Of many tenants it counts the first hundred.
local function ahead(j, order)
  local band = band_of(j.rank)
  local own = order == 'fair' and redis.call('ZRANK', key('q', 'waits' .. band, j.tenant), j.rank)
  if not own then
    return redis.call('ZRANK', key('q', 'waiting'), j.rank)
  end
  local least = virtual(band) - LAG
  local function tag(score)
    return math.max(tonumber(score), least)
  end
  local turn = tag(redis.call('ZSCORE', key('q', 'tenants' .. band), j.tenant)) + own * step(band, j.tenant)
  local tenants = redis.call('ZRANGE', key('q', 'tenants' .. band), '0', '99', 'WITHSCORES')
  local n, passed = own, false
  for i = 1, #tenants, 2 do
    local t, from = tenants[i], tag(tenants[i + 1])
    if t == j.tenant then
      passed = true -- those behind it win no ties
    elseif from < turn or from == turn and not passed then
      local jobs = math.ceil((turn - from) / step(band, t))
      n = n + math.min(math.max(jobs, 1), redis.call('ZCARD', key('q', 'waits' .. band, t)))
    end
  end
  return n + of_others(band, n)
end

-- ranks returns the first n jobs of some classes, from the zsets that of(class)
-- names.
local function ranks(classes, n, of)
  local list = {}
  for _, class in ipairs(classes) do
    for _, rank in ipairs(redis.call('ZRANGE', of(class), '0', int(n - 1))) do
      list[#list + 1] = rank
    end
  end
  if #classes > 1 then
    table.sort(list)
    for i = #list, n + 1, -1 do
      list[i] = nil
    end
  end
  return list
end

-- Tenants in the order of their tags: a heap of those that are being read.
local function before(a, b)
  if a.tag ~= b.tag then
    return a.tag < b.tag
  end
  return a.place < b.place
end

local function sink(heap, i)
  while true do
    local least, child = i, 2 * i
    if heap[child] and before(heap[child], heap[least]) then
      least = child
    end
    if heap[child + 1] and before(heap[child + 1], heap[least]) then
      least = child + 1
    end
    if least == i then
      return
    end
    heap[i], heap[least] = heap[least], heap[i]
    i = least
  end
end

local function push(heap, t)
  local i = #heap + 1
  heap[i] = t
  while i > 1 do
    local parent = math.floor(i / 2)
    if not before(heap[i], heap[parent]) then
      return
    end
    heap[i], heap[parent] = heap[parent], heap[i]
    i = parent
  end
end

local function drop_first(heap)
  local last = #heap
  heap[1] = heap[last]
  heap[last] = nil
  if last > 1 then
    sink(heap, 1)
  end
end

-- any reports whether a table has an entry.
local function any(t)
  return next(t) ~= nil
end

-- set_of returns a list as a set.
local function set_of(list)
  local set = {}
  for _, entry in ipairs(list) do
    set[entry] = true
  end
  return set
end

-- own_of returns the classes of a tenant with waiting jobs of a band that are in a set, but
-- not in another one.
local function own_of(band, tenant, set, but)
  local list = {}
  for _, class in ipairs(redis.call('SMEMBERS', key('q', 'classes' .. band, tenant))) do
    if set[class] and not but[class] then
      list[#list + 1] = class
    end
  end
  return list
end

-- waits names the zsets of the jobs of some classes, and of those that tenants have of
-- their own classes: sets, by tenant.
local function waits(classes, own)
  local list, wanted = {}, set_of(classes)
  for _, class in ipairs(classes) do
    list[#list + 1] = key('q', 'wait', class)
  end
  for tenant, set in pairs(own) do
    for _, band in ipairs(BANDS) do
      for _, class in ipairs(own_of(band, tenant, set, wanted)) do
        list[#list + 1] = key('q', 'wait' .. band, class, tenant)
      end
    end
  end
  return list
end

-- in_turn returns the ranks of the first n jobs of some classes, in the order in
-- which they are due if each takes what its tenant's last one did. All are of one band.
-- Those of some tenants are left out. own has further classes of which only one tenant's
-- jobs are wanted: sets, by tenant.
local function in_turn(band, classes, n, barred, own)
  local wanted = set_of(classes)

  -- own_classes are the tenant's classes among the wanted ones.
  local function own_classes(tenant)
    local list = own[tenant] and own_of(band, tenant, own[tenant], wanted) or {}
    if redis.call('SCARD', key('q', 'classes' .. band, tenant)) > #classes and #list == 0 then
      return classes
    end
    for _, class in ipairs(redis.call('SMEMBERS', key('q', 'classes' .. band, tenant))) do
      if wanted[class] then
        list[#list + 1] = class
      end
    end
    return list
  end

  -- turns returns the tenants with waiting jobs, and their tags, from a place on. Where
  -- only some tenants' jobs are wanted, no others are read.
  local function turns(place)
    if #classes > 0 then
      return redis.call('ZRANGE', key('q', 'tenants' .. band), int(place), int(place + 31), 'WITHSCORES')
    end
    local list, flat = {}, {}
    for tenant in pairs(place == 0 and own or {}) do
      local tag = redis.call('ZSCORE', key('q', 'tenants' .. band), tenant)
      if tag then
        list[#list + 1] = {tenant, tonumber(tag)}
      end
    end
    table.sort(list, function(a, b)
      return a[2] < b[2] or a[2] == b[2] and a[1] < b[1]
    end)
    for _, t in ipairs(list) do
      flat[#flat + 1], flat[#flat + 2] = t[1], t[2]
    end
    return flat
  end

  -- read reads more of a tenant's jobs; false when there are no more.
  local function read(t)
    if t.size and #t.ranks < t.size then
      return false
    end
    t.size = math.min(t.size and 4 * t.size or 8, n)
    t.ranks = ranks(t.classes, t.size, function(class) return key('q', 'wait' .. band, class, t.name) end)
    return t.ranks[t.at] ~= nil
  end

  local heap, place, out = {}, 0, {}
  local least, coming, at = virtual(band) - LAG, {}, 1
  local function upcoming()
    if at > #coming then
      coming = turns(place)
      at = 1
    end
    return coming[at], coming[at] and math.max(tonumber(coming[at + 1]), least)
  end
  while #out < n do
    local name, tag = upcoming()
    -- Of equals, the one that was read first is first, so the others are not read.
    while name and (not heap[1] or tag < heap[1].tag) do
      local own = barred[name] and {} or own_classes(name)
      local t = {name = name, tag = tag, place = place, at = 1, classes = own, step = step(band, name)}
      if #t.classes > 0 and read(t) then
        push(heap, t)
      end
      place, at = place + 1, at + 2
      name, tag = upcoming()
    end
    local t = heap[1]
    if not t then
      return out
    end
    out[#out + 1] = t.ranks[t.at]
    t.at, t.tag = t.at + 1, t.tag + t.step
    if t.ranks[t.at] or read(t) then
      sink(heap, 1)
    else
      drop_first(heap)
    end
  end
  return out
end

-- in_bands is in_turn for all bands: a job of a lower band is due after each nine of higher
-- ones.
local function in_bands(classes, n, barred, own)
  local lists, at, passed, used = {}, {}, {}, 0
  for i, band in ipairs(BANDS) do
    lists[i], at[i], passed[i] = {}, 1, 0
    if redis.call('EXISTS', key('q', 'tenants' .. band)) == 1 then
      lists[i] = in_turn(band, classes, n, barred, own)
      passed[i] = passed_over(band)
      if #lists[i] > 0 then
        used = used + 1
      end
    end
  end
  if used < 2 then
    return #lists[1] > 0 and lists[1] or #lists[2] > 0 and lists[2] or lists[3]
  end

  local function waits(i)
    return lists[i][at[i]] ~= nil
  end

  local function next_band()
    for i = #BANDS, 2, -1 do
      if waits(i) and passed[i] >= NINE then
        return i
      end
    end
    for i = 1, #BANDS do
      if waits(i) then
        return i
      end
    end
  end

  local out = {}
  while #out < n do
    local i = next_band()
    if not i then
      break
    end
    out[#out + 1] = lists[i][at[i]]
    at[i], passed[i] = at[i] + 1, 0
    for lower = i + 1, #BANDS do
      passed[lower] = waits(lower) and passed[lower] + 1 or 0
    end
  end
  return out
end
