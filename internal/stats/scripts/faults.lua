-- Adds faults, and drops the oldest ones that are too many.
--
-- ARGV[1] bound of all
-- ARGV[2] bound of one tenant's
-- ARGV[3] how long they are kept, in milliseconds
-- ARGV[4...] tenant, fault, tenant, fault, ...
--
-- Output: {'ok'}
local faults = key('h', 'faults')
for i = 4, #ARGV, 2 do
  local n = write('HINCRBY', faults, 'n', '1')
  write('HSET', faults, int(n), int(now()) .. ' ' .. ARGV[i] .. ' ' .. ARGV[i + 1])
end
local numbers = {}
for _, field in ipairs(redis.call('HKEYS', faults)) do
  if field ~= 'n' then
    numbers[#numbers + 1] = tonumber(field)
  end
end
table.sort(numbers, function(a, b) return a > b end)
local all, of = 0, {}
for _, n in ipairs(numbers) do
  local at, tenant = string.match(redis.call('HGET', faults, int(n)), '^(%d+) (%S*) ')
  if not at then
    write('HDEL', faults, int(n))
  else
    of[tenant] = (of[tenant] or 0) + 1
    all = all + 1
    if all > tonumber(ARGV[1]) or of[tenant] > tonumber(ARGV[2]) or tonumber(at) < now() - tonumber(ARGV[3]) then
      all = all - 1
      write('HDEL', faults, int(n))
    end
  end
end
return {'ok'}
