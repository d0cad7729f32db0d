-- Stops what the operator names, or lets it go on.
--
-- ARGV[1] 'all', 'tenant:NAME' or 'instance:NAME'
-- ARGV[2] '1' to stop it, '0' to let it go on
-- ARGV[3] how many may be stopped
--
-- Output: {'ok', '1' if that has changed anything}
--         {'full'}
local stops = key('q', 'stops')
if ARGV[2] == '0' then
  return {'ok', int(write('SREM', stops, ARGV[1]))}
end
if redis.call('SISMEMBER', stops, ARGV[1]) == 1 then
  return {'ok', '0'}
end
if redis.call('SCARD', stops) >= tonumber(ARGV[3]) then
  return {'full'}
end
return {'ok', int(write('SADD', stops, ARGV[1]))}
