-- Compares the mark of a storage with the one that the first hub found.
--
-- ARGV[1] the mark
--
-- Output: {mark of the first hub}
local first = redis.call('GET', key('files', 'mark'))
if not first then
  write('SET', key('files', 'mark'), ARGV[1])
  first = ARGV[1]
end
return {first}
