-- Which of the waiting jobs are wanted: those of all classes but some, and of some classes those of
-- some tenants. Each list of waiting jobs is read from its front, so that the time a look takes
-- depends on what it returns.
--
-- w.open says that anybody's jobs are wanted, otherwise only those of the tenants in w.own; w.but
-- is a set of classes that are not wanted, and w.own has the exceptions: a set of classes per
-- tenant.

-- FEW is the number of classes up to which all of their lists may be read.
local FEW = 16

-- any reports whether a table has an entry.
local function any(t)
  return next(t) ~= nil
end

-- wants reports whether a tenant's jobs of a class are wanted; nil stands for anybody's.
local function wants(w, class, tenant)
  local own = tenant and w.own[tenant]
  if w.but[class] then
    return own and own[class] or false
  end
  return w.open or own ~= nil
end

-- A heap of lists and tenants being read: the one with the lowest tag comes first.
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

-- reader returns a function that returns the next rank of a zset each time, nil at the end. It
-- reads the first few, then more at a time.
local function reader(name, size)
  local list, at, from = {}, 1, 0
  return function()
    if at > #list and size > 0 then
      list, at = redis.call('ZRANGE', name, int(from), int(from + size - 1)), 1
      from = from + #list
      size = #list == size and math.min(4 * size, 256) or 0
    end
    at = at + 1
    return list[at - 1]
  end
end

-- merged is reader for several zsets.
local function merged(names)
  if #names == 1 then
    return reader(names[1], 8)
  end
  local heap, size = {}, #names > FEW and 1 or 8
  for i, name in ipairs(names) do
    local more = reader(name, size)
    local rank = more()
    if rank then
      push(heap, {tag = rank, place = i, more = more})
    end
  end
  return function()
    local first = heap[1]
    if not first then
      return nil
    end
    local rank = first.tag
    first.tag = first.more()
    if first.tag then
      sink(heap, 1)
    else
      drop_first(heap)
    end
    return rank
  end
end

-- filtered is reader for the wanted jobs of a zset. If it meets so many others that it would be
-- faster to read the list of each class, it goes on with those: lists() names them.
local function filtered(w, name, classes, lists)
  if w.open and not any(w.but) then
    return reader(name, 8)
  end
  local bound = redis.call('SCARD', classes)
  if not w.open or bound <= FEW then
    return merged(lists())
  end
  local more, given, others = reader(name, 8), 0, 0
  return function()
    while others do
      local rank = more()
      if not rank then
        return nil
      end
      local f = redis.call('HMGET', job_key(key_of(rank)), 'class', 'tenant')
      if f[1] and wants(w, f[1], f[2]) then
        given = given + 1
        return rank
      end
      others = others + 1
      if others > given + bound / 4 then
        others, more = nil, merged(lists())
        for _ = 1, given do
          more()
        end
      end
    end
    return more()
  end
end

-- of_tenant is reader for the wanted jobs of a tenant in a band.
local function of_tenant(w, band, tenant)
  local classes = key('q', 'classes' .. band, tenant)
  return filtered(w, key('q', 'waits' .. band, tenant), classes, function()
    local names = {}
    for _, class in ipairs(redis.call('SMEMBERS', classes)) do
      if wants(w, class, tenant) then
        names[#names + 1] = key('q', 'wait' .. band, class, tenant)
      end
    end
    return names
  end)
end

-- of_all is reader for all wanted jobs in rank order.
local function of_all(w)
  local classes = key('q', 'classes')
  return filtered(w, key('q', 'waiting'), classes, function()
    local names = {}
    for _, class in ipairs(w.open and redis.call('SMEMBERS', classes) or {}) do
      if wants(w, class) then
        names[#names + 1] = key('q', 'wait', class)
      end
    end
    for tenant in pairs(w.own) do
      for _, band in ipairs(BANDS) do
        for _, class in ipairs(redis.call('SMEMBERS', key('q', 'classes' .. band, tenant))) do
          if wants(w, class, tenant) and not wants(w, class) then
            names[#names + 1] = key('q', 'wait' .. band, class, tenant)
          end
        end
      end
    end
    return names
  end)
end
