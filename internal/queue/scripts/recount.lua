-- Adds history entries that an older hub wrote to the shares of their tenants. Entries that have
-- been counted do not change, so it may be run again.
--
-- ARGV[1] first entry to look at, by the order of the ends
-- ARGV[2] how many to look at
--
-- Output: {'ok', how many were looked at}
local from = tonumber(ARGV[1])
local keys = redis.call('ZRANGE', key('q', 'history'), int(from), int(from + tonumber(ARGV[2]) - 1))
for _, k in ipairs(keys) do
  local j = get(k)
  if j and not shared(j) then
    set(j, 'shared', '1')
    tally(j.tenant, tonumber(j.size or '0'))
  end
end
return {'ok', int(#keys)}
