-- Ends the caller's time as the process that acts.
-- ARGV: owner
if redis.call('GET', key('leader')) == ARGV[1] then
  write('DEL', key('leader'))
end
return {'ok'}
