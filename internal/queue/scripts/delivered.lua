-- Records that a client confirmed the end of its job.
--
-- ARGV[1] key
--
-- Output: {'ok'} or {'missing'}
local j = get(ARGV[1])
if not j then
  return {'missing'}
end
if j.delivered ~= '1' then
  set(j, 'delivered', '1')
  write('ZREM', undelivered(j), j.key)
end
return {'ok'}
