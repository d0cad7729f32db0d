-- Drops the oldest history entries that ended before a moment.
--
-- ARGV[1] the moment in milliseconds
--
-- Output: {'ok', then key, tenant, id, entry of each entry that was dropped}
local out = {'ok'}
for _, k in ipairs(redis.call('ZRANGE', key('q', 'history'), 0, 15)) do
  local finished = redis.call('HGET', job_key(k), 'finished')
  if finished and tonumber(finished) >= tonumber(ARGV[1]) then
    break
  end
  drop(out, k)
end
return out
