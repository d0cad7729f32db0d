-- Records that clients confirmed the ends of their jobs.
--
-- ARGV tenant and id of each
--
-- Output: {'ok', key, key, ...} in the same order; '' for a job that is not known
local reply = {'ok'}
for i = 1, #ARGV, 2 do
  local k = redis.call('HGET', key('q', 'ids', ARGV[i]), ARGV[i + 1])
  local j = k and get(k)
  if j and j.withdrawn then
    j = nil
  end
  if j and j.delivered ~= '1' then
    set(j, 'delivered', '1')
    write('ZREM', undelivered(j), j.key)
  end
  reply[#reply + 1] = j and k or ''
end
return reply
