-- Reads a part of the waiting jobs in the order in which they are given out.
--
-- ARGV[1] order of the queue: 'fair' or 'fifo'
-- ARGV[2] how many to leave out
-- ARGV[3] how many to return
-- ARGV[4] '1' if anybody's jobs are wanted, else only those of the groups' tenants
-- ARGV[5] number of groups: classes of which only some tenants' jobs are wanted
-- ARGV[6...] for each group the number of its tenants, the number of its classes, the
--         tenants, the classes; then other classes that are not wanted
--
-- Output: {'ok', '1' if there are more behind these, milliseconds until the first of
--          those may run that must not yet or '0', number of classes with waiting jobs,
--          job, job, ...}; jobs are packed

local skip, n = tonumber(ARGV[2]), tonumber(ARGV[3])
local w = {open = ARGV[4] == '1', but = {}, own = {}}
local at = 6
for _ = 1, tonumber(ARGV[5]) do
  local tenants, classes = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local first = at + 2
  at = first + tenants + classes
  for t = first, first + tenants - 1 do
    local own = w.own[ARGV[t]] or {}
    w.own[ARGV[t]] = own
    for c = first + tenants, at - 1 do
      own[ARGV[c]] = true
      w.but[ARGV[c]] = true
    end
  end
end
for c = at, #ARGV do
  w.but[ARGV[c]] = true
end
local stopped = stops()
local barred, next = capped(stopped)
local ranks = {}
if stopped.all then
  -- nothing is given out
elseif ARGV[1] == 'fair' then
  ranks = in_bands(skip + n, barred, w)
else
  local more = of_all(w)
  for i = 1, skip + n do
    ranks[i] = more()
    if not ranks[i] then
      break
    end
  end
end
local out = {'ok', #ranks == skip + n and '1' or '0', '0', int(redis.call('SCARD', key('q', 'classes')))}
for i = skip + 1, #ranks do
  local fields = redis.call('HGETALL', job_key(key_of(ranks[i])))
  local state, not_before, tenant
  for f = 1, #fields, 2 do
    if fields[f] == 'state' then
      state = fields[f + 1]
    elseif fields[f] == 'not_before' then
      not_before = tonumber(fields[f + 1])
    elseif fields[f] == 'tenant' then
      tenant = fields[f + 1]
    end
  end
  local left = (not_before or 0) - now()
  if state ~= 'queued' then
    -- a hub of a version without the index has it; the sweep repairs that
  elseif barred[tenant] then
    -- with the order 'fifo' it is listed all the same
  elseif left > 0 then
    next = next == 0 and left or math.min(next, left)
  else
    out[#out + 1] = pack(unpack(fields))
  end
end
out[3] = int(next)
return out
