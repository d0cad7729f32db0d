-- Makes the caller the process that acts, or renews that.
-- ARGV: owner, ms
-- Output: leads, term | follows
local holder = redis.call('GET', key('leader'))
if holder and holder ~= ARGV[1] then
  return {'follows'}
end
if not holder then
  write('INCR', key('term'))
end
write('SET', key('leader'), ARGV[1])
write('PEXPIREAT', key('leader'), int(now() + tonumber(ARGV[2])))
return {'leads', redis.call('GET', key('term'))}
