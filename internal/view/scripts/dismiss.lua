-- Notes that a tenant wants to see no more hints of a name.
--
-- ARGV[1] tenant
-- ARGV[2] name
-- ARGV[3] bound of the tenants
--
-- Output: {'ok'}, {'full'} when there are too many tenants
local dismissed = key('hints', 'dismissed') -- hash: tenant -> names, separated by spaces
local names = redis.call('HGET', dismissed, ARGV[1])
if not names and redis.call('HLEN', dismissed) >= tonumber(ARGV[3]) then
  return {'full'}
end
if not string.find(' ' .. (names or '') .. ' ', ' ' .. ARGV[2] .. ' ', 1, true) then
  write('HSET', dismissed, ARGV[1], names and names .. ' ' .. ARGV[2] or ARGV[2])
end
return {'ok'}
