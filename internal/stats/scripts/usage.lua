-- Reads what was used on a day.
--
-- ARGV[1] day, since 1970 by UTC
-- ARGV[2] '1' for one tenant only
-- ARGV[3] that tenant
-- ARGV[4] and further: the kinds
--
-- Output: {KIND:TENANT, how much, ...}
local all = key('usage', ARGV[1])
if ARGV[2] ~= '1' then
  return redis.call('HGETALL', all)
end
local out = {}
for n = 4, #ARGV do
  local field = ARGV[n] .. ':' .. ARGV[3]
  local amount = redis.call('HGET', all, field)
  if amount then
    out[#out + 1] = field
    out[#out + 1] = amount
  end
end
return out
