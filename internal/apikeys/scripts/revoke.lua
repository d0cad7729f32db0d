-- Takes a key away.
--
-- ARGV[1] name
-- ARGV[2] a version that there never was
--
-- Output: {'1'}, or {'0'} if there was none
local had = write('HDEL', key('g', 'apikeys'), ARGV[1])
write('HDEL', key('g', 'apikeys', 'used'), ARGV[1])
write('SET', key('g', 'apikeys', 'version'), ARGV[2])
return {int(had)}
