-- Drops the history entries that ended longest ago, up to a moment.
--
-- ARGV[1] the moment in milliseconds
--
-- Output: {'ok', number of entries dropped}; 0 when there are no more
local n = 0
for _, k in ipairs(redis.call('ZRANGE', key('q', 'history'), 0, 15)) do
  local finished = redis.call('HGET', job_key(k), 'finished')
  if finished and tonumber(finished) > tonumber(ARGV[1]) then
    break
  end
  drop(k)
  n = n + 1
end
return {'ok', int(n)}
