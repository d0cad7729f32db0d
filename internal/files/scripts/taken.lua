-- Returns how much space a tenant's files take up.
--
-- ARGV[1] tenant
--
-- Output: {bytes of its outputs and uploads}
local outputs = redis.call('ZSCORE', key('files', 'shares'), ARGV[1]) or '0'
local uploads = redis.call('HGET', key('files', 'uploads', ARGV[1]), '=bytes') or '0'
return {int(math.max(tonumber(outputs) + tonumber(uploads), 0))}
