-- Stores what is known of instances and removes others.
-- ARGV: the number of entries; per entry its name and text; then the names to remove.
local former = key('fleet', 'former')
local entries = tonumber(ARGV[1])
for n = 2, 2 * entries, 2 do
  write('HSET', former, ARGV[n], ARGV[n + 1])
end
for n = 2 * entries + 2, #ARGV do
  write('HDEL', former, ARGV[n])
end
return {'ok'}
