-- Adds files that an older hub has made to their tenant's index, and their size to its share.
--
-- ARGV tenant, type, subfolder, name and key of the folder of each
--
-- Output: {'ok'}
for i = 1, #ARGV, 5 do
  local packed = member(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  local last = redis.call('ZSCORE', index(ARGV[i + 1]), packed)
  if last and not isCounted(ARGV[i], packed) then
    local entry = redis.call('HGET', ARGV[i + 4], ARGV[i + 3])
    touch(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], int(tonumber(last)), entry or '')
  end
end
return {'ok'}
