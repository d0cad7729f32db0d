-- Adds counts to the present bucket, and drops those that are too old.
--
-- ARGV[1] width of a bucket, in milliseconds
-- ARGV[2] how many are kept
-- ARGV[3...] name, number, name, number, ...
--
-- Output: {'ok'}
local trends = key('h', 'trends')
local bucket = math.floor(now() / tonumber(ARGV[1]))
local order, counts = {}, {}
for name, n in string.gmatch(redis.call('HGET', trends, int(bucket)) or '', '(%S+)=(%d+)') do
  order[#order + 1] = name
  counts[name] = tonumber(n)
end
for i = 3, #ARGV, 2 do
  if not counts[ARGV[i]] then
    order[#order + 1] = ARGV[i]
  end
  counts[ARGV[i]] = (counts[ARGV[i]] or 0) + tonumber(ARGV[i + 1])
end
for i, name in ipairs(order) do
  order[i] = name .. '=' .. int(counts[name])
end
write('HSET', trends, int(bucket), table.concat(order, ' '))
for _, field in ipairs(redis.call('HKEYS', trends)) do
  local n = tonumber(field)
  if not n or n <= bucket - tonumber(ARGV[2]) or n > bucket then
    write('HDEL', trends, field)
  end
end
return {'ok'}
