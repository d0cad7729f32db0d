-- Extends the leases of a hub's runs.
--
-- ARGV[1] hub
-- ARGV[2] lease in milliseconds
-- ARGV[3...] key and fence of each run
--
-- Output: {'ok', 'held' | 'cancelled' | 'withdrawn' | 'lost', ...} in the order of the runs
local out = {'ok'}
local till = int(now() + tonumber(ARGV[2]))
for i = 3, #ARGV, 2 do
  local j = held(ARGV[i], ARGV[i + 1])
  if not j or j.hub ~= ARGV[1] then
    out[#out + 1] = 'lost'
  else
    set(j, 'grace', '', renewed(j, till))
    write('ZADD', key('q', 'leases'), till, j.key)
    out[#out + 1] = j.withdrawn and 'withdrawn' or j.cancel and 'cancelled' or 'held'
  end
end
return out
