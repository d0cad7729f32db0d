-- Takes the oldest names out of a tenant's trash. Nothing names their blobs any more, unless
-- other names do.
--
-- ARGV[1] tenant
-- ARGV[2] how many bytes its trash may take; those whose time is over go anyway
-- ARGV[3] how many names may go
--
-- Output: {'ok', key of the blob, its size, ...}
local out = {'ok'}
local bytes = tonumber(redis.call('ZSCORE', key('files', 'trash'), ARGV[1]) or '0')
local oldest = redis.call('ZRANGE', trash(ARGV[1]), '0', int(tonumber(ARGV[3]) - 1), 'WITHSCORES')
for i = 1, #oldest, 2 do
  if bytes <= tonumber(ARGV[2]) and tonumber(oldest[i + 1]) > now() then
    break
  end
  local entry = take_out(ARGV[1], oldest[i])
  bytes = bytes - sizeOf(entry)
  discount(blobOf(entry))
  out[#out + 1] = blobOf(entry)
  out[#out + 1] = int(sizeOf(entry))
end
return out
