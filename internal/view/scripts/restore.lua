-- Notes that a tenant wants to see hints of a name again.
--
-- ARGV[1] tenant
-- ARGV[2] name
--
-- Output: {'ok'}
local dismissed = key('hints', 'dismissed') -- hash: tenant -> names, separated by spaces
local left = {}
for name in string.gmatch(redis.call('HGET', dismissed, ARGV[1]) or '', '%S+') do
  if name ~= ARGV[2] then
    left[#left + 1] = name
  end
end
if #left == 0 then
  write('HDEL', dismissed, ARGV[1])
else
  write('HSET', dismissed, ARGV[1], table.concat(left, ' '))
end
return {'ok'}
