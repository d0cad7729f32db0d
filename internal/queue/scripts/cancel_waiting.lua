-- Removes those of the jobs that are waiting, in the queue or behind another one at an instance.
--
-- ARGV[1] life of a tombstone in milliseconds
-- ARGV[2...] keys
--
-- Output: {'ok', the keys that were removed}
local out = {'ok'}
for i = 2, #ARGV do
  local j = get(ARGV[i])
  if j and j.state == 'queued' then
    withdraw(j, ARGV[1])
    out[#out + 1] = j.key
  elseif j and is_ahead(j) and not j.cancel then
    take_back(j, ARGV[1])
    out[#out + 1] = j.key
  end
end
return out
