-- Reads a part of the waiting jobs in the order in which they are given out.
--
-- ARGV[1] order of the queue: 'fair' or 'fifo'
-- ARGV[2] how many to leave out
-- ARGV[3] how many to return
-- ARGV[4] number of classes whose jobs are wanted, whoever posted them
-- ARGV[5] number of groups: further classes of which only some tenants' jobs are wanted
-- ARGV[6...] the classes; for each group the number of its tenants, the number of its
--         classes, the tenants, the classes; then other classes that are known
--
-- Output: {'ok', '1' if there are more behind these, milliseconds until the first of
--          those may run that must not yet or '0', number of classes with waiting jobs,
--          number of those that are not known, class, class, ..., job, job, ...};
--          jobs are packed

-- BATCH bounds the classes that are named.
local BATCH = 1000

local skip, n = tonumber(ARGV[2]), tonumber(ARGV[3])
local classes, own, known, unknown = {}, {}, {}, {}
local at = 6
local function read_classes(count) -- unpack() fails for thousands
  local list = {}
  for i = at, at + count - 1 do
    known[ARGV[i]] = true
    list[#list + 1] = ARGV[i]
  end
  at = at + count
  return list
end
classes = read_classes(tonumber(ARGV[4]))
for _ = 1, tonumber(ARGV[5]) do
  local tenants, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local first = at + 2
  at = first + tenants
  local group = read_classes(count)
  for i = first, first + tenants - 1 do
    own[ARGV[i]] = own[ARGV[i]] or {}
    for _, class in ipairs(group) do
      own[ARGV[i]][class] = true
    end
  end
end
read_classes(#ARGV - at + 1)
local stopped = stops()
local barred, next = capped(stopped)
local waiting = redis.call('SMEMBERS', key('q', 'classes'))
for _, class in ipairs(waiting) do
  if not known[class] and #unknown < BATCH then
    unknown[#unknown + 1] = class
  end
end
local list = {}
if #classes == 0 and not any(own) or stopped.all then
  -- it is asked only for what is not known, or nothing is given out
elseif ARGV[1] == 'fair' then
  list = in_bands(classes, skip + n, barred, own)
else
  list = ranks(waits(classes, own), skip + n, function(waits) return waits end)
end
local out = {'ok', #list == skip + n and '1' or '0', '0', int(#waiting), int(#unknown)}
for _, class in ipairs(unknown) do
  out[#out + 1] = class
end
for i = skip + 1, #list do
  local fields = redis.call('HGETALL', job_key(key_of(list[i])))
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
