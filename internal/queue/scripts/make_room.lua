-- Drops the oldest history entries in a Redis that is out of memory. Such a Redis lets a script
-- continue that begins by deleting.
--
-- ARGV[1] the time in milliseconds up to which jobs must have ended
-- ARGV[2] how many entries may go
--
-- Output: {'ok', number of entries dropped}, or {'room'} if Redis is not full: what is full
-- is something else, or there is room by now
local info = redis.pcall('INFO', 'memory')
if type(info) == 'string' then
  local used, bound = string.match(info, 'used_memory:(%d+)'), string.match(info, 'maxmemory:(%d+)')
  if not bound or tonumber(used) < tonumber(bound) then
    return {'room'}
  end
end
local n = 0
for _, k in ipairs(redis.call('ZRANGE', key('q', 'history'), '0', int(tonumber(ARGV[2]) - 1))) do
  local finished = redis.call('HGET', job_key(k), 'finished')
  if finished and tonumber(finished) > tonumber(ARGV[1]) then
    break
  end
  drop(k)
  n = n + 1
end
return {'ok', int(n)}
