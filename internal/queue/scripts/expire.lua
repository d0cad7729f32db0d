-- Drops the oldest history entries, up to a time.
--
-- ARGV[1] the time in milliseconds
-- ARGV[2] the tenant whose entries may go, or '' for all
--
-- Output: {'ok', number of entries dropped}; 0 when there are no more
local n = 0
local keys
if ARGV[2] == '' then
  keys = redis.call('ZRANGE', key('q', 'history'), '0', '15')
else
  -- Not all entries that took the place of an older one are as old as their place says.
  keys = redis.call('ZRANGE', key('q', 'history', ARGV[2]), '0', '63')
end
for _, k in ipairs(keys) do
  local finished = redis.call('HGET', job_key(k), 'finished')
  if not finished or tonumber(finished) <= tonumber(ARGV[1]) then
    drop(k, ARGV[2] ~= '' and ARGV[2] or nil)
    n = n + 1
  elseif ARGV[2] == '' then
    break
  end
end
return {'ok', int(n)}
