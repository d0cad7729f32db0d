-- The order in which waiting jobs are given out.

-- counter returns a function that counts the jobs that will be given out before a waiting one if
-- nothing changes, by its rank and its tenant; nil if that is not waiting. If there are many
-- tenants, it counts the first hundred. What a band's jobs have in common is read once.
local function counter(order)
  local bands, waiting = {}, {}

  -- line returns the tenants of a band in the order of their tags.
  local function line(band)
    if not bands[band] then
      local list, least = {}, virtual(band) - LAG
      local tenants = redis.call('ZRANGE', key('q', 'tenants' .. band), '0', '99', 'WITHSCORES')
      for i = 1, #tenants, 2 do
        list[#list + 1] = {name = tenants[i], tag = math.max(tonumber(tenants[i + 1]), least)}
      end
      bands[band] = {list = list, least = least}
    end
    return bands[band]
  end

  -- due counts the jobs of another tenant that come before a turn. The first of equals comes first.
  local function due(band, t, turn, first)
    t.step = t.step or step(band, t.name)
    t.waits = t.waits or redis.call('ZCARD', key('q', 'waits' .. band, t.name))
    local jobs = (turn - t.tag) / t.step
    return math.min(first and math.floor(jobs) + 1 or math.ceil(jobs), t.waits)
  end

  return function(rank, tenant)
    local band = band_of(rank)
    local own = order == 'fair' and redis.call('ZRANK', key('q', 'waits' .. band, tenant), rank)
    if not own then
      return redis.call('ZRANK', key('q', 'waiting'), rank)
    end
    local l = line(band)
    local tag = math.max(tonumber(redis.call('ZSCORE', key('q', 'tenants' .. band), tenant)), l.least)
    local turn, n, first = tag + own * step(band, tenant), own, true
    for _, t in ipairs(l.list) do
      if t.tag > turn then
        break
      elseif t.name == tenant then
        first = false
      else
        n = n + due(band, t, turn, first)
      end
    end
    return n + of_others(band, n, waiting)
  end
end

-- in_turn returns the ranks of the first n wanted jobs of a band, in the order in which they are
-- due if each takes as long as its tenant's last one. Jobs of barred tenants are left out.
local function in_turn(band, n, barred, w)
  -- turns returns the tenants with waiting jobs, and their tags, starting at a place. If only some
  -- tenants' jobs are wanted, no others are read.
  local function turns(place)
    if w.open then
      return redis.call('ZRANGE', key('q', 'tenants' .. band), int(place), int(place + 31), 'WITHSCORES')
    end
    local list, flat = {}, {}
    for tenant in pairs(place == 0 and w.own or {}) do
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
    -- Among equals the one read first wins, so the others are not read.
    while name and (not heap[1] or tag < heap[1].tag) do
      local more = not barred[name] and of_tenant(w, band, name)
      local rank = more and more()
      if rank then
        push(heap, {tag = tag, place = place, more = more, rank = rank, step = step(band, name)})
      end
      place, at = place + 1, at + 2
      name, tag = upcoming()
    end
    local t = heap[1]
    if not t then
      return out
    end
    out[#out + 1] = t.rank
    if #out < n then
      t.rank, t.tag = t.more(), t.tag + t.step
      if t.rank then
        sink(heap, 1)
      else
        drop_first(heap)
      end
    end
  end
  return out
end

-- in_bands is in_turn for all bands: one job of a lower band is due after every nine of higher
-- ones.
local function in_bands(n, barred, w)
  local lists, at, passed, used = {}, {}, {}, 0
  for i, band in ipairs(BANDS) do
    lists[i], at[i], passed[i] = {}, 1, 0
    if redis.call('EXISTS', key('q', 'tenants' .. band)) == 1 then
      lists[i] = in_turn(band, n, barred, w)
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
