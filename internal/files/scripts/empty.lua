-- Takes the oldest names out of a tenant's trash.
--
-- ARGV[1] tenant
-- ARGV[2] how many bytes its trash may take; those whose time is over go anyway
-- ARGV[3] how many names may go
-- ARGV[4] what time it is, in milliseconds: this clock may have been set forward
--
-- Output: {'ok', how many names went}
local bytes = tonumber(redis.call('ZSCORE', key('files', 'trash'), ARGV[1]) or '0')
local oldest = redis.call('ZRANGE', trash(ARGV[1]), '0', int(tonumber(ARGV[3]) - 1), 'WITHSCORES')
local gone = 0
for i = 1, #oldest, 2 do
  if bytes <= tonumber(ARGV[2]) and tonumber(oldest[i + 1]) > tonumber(ARGV[4]) then
    break
  end
  bytes, gone = bytes - drop(ARGV[1], oldest[i]), gone + 1
end
return {'ok', int(gone)}
