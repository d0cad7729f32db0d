-- Reads a part of the waiting jobs in the order in which they are given out.
--
-- ARGV[1] order of the queue: 'fair' or 'fifo'
-- ARGV[2] how many to leave out
-- ARGV[3] how many to return
-- ARGV[4] number of classes whose jobs are wanted; then these
-- ARGV[5...] behind them: other classes that are known
--
-- Output: {'ok', '1' if there are more behind these, milliseconds until the first of
--          those may run that must not yet or '0', number of classes with waiting jobs,
--          number of those that are not known, class, class, ..., job, job, ...};
--          jobs are packed

-- BATCH bounds the classes that are named.
local BATCH = 1000

local skip, n, last = tonumber(ARGV[2]), tonumber(ARGV[3]), 4 + tonumber(ARGV[4])
local classes, known, unknown = {}, {}, {}
for i = 5, #ARGV do -- unpack() fails for thousands
  known[ARGV[i]] = true
  if i <= last then
    classes[#classes + 1] = ARGV[i]
  end
end
local stopped = stops()
local barred, next = capped(stopped)
local waiting = redis.call('SMEMBERS', key('q', 'classes'))
for _, class in ipairs(waiting) do
  if not known[class] and #unknown < BATCH then
    unknown[#unknown + 1] = class
  end
end
local list = {}
if #classes == 0 or stopped.all then
  -- it is asked only for what is not known, or nothing is given out
elseif ARGV[1] == 'fair' then
  list = in_bands(classes, skip + n, barred)
else
  list = ranks(classes, skip + n, function(class) return key('q', 'wait', class) end)
end
local out = {'ok', #list == skip + n and '1' or '0', '0', int(#waiting), int(#unknown)}
for _, class in ipairs(unknown) do
  out[#out + 1] = class
end
for i = skip + 1, #list do
  local fields = redis.call('HGETALL', job_key(string.match(list[i], '[^:]*$')))
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
