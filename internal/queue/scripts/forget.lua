-- Removes history entries.
--
-- ARGV[1] tenant
-- ARGV[2] 'ids' or 'keys'
-- ARGV[3...] ids of entries, or keys of jobs
--
-- Output: {'ok', number of entries removed}
local n = 0
for i = 3, #ARGV do
  local k = ARGV[i]
  if ARGV[2] == 'ids' then
    k = redis.call('HGET', key('q', 'entries', ARGV[1]), k)
  end
  local j = k and get(k)
  if j and j.size then
    forget(j)
    stay_gone(k)
    n = n + 1
  end
end
return {'ok', int(n)}
