-- Decides that a blob may be deleted, and keeps others from taking it up meanwhile.
--
-- ARGV[1] key of the blob
-- ARGV[2] how long the decision stands, in milliseconds
--
-- Output: {'ok'}, {'safe'} when it has a name or is held, {'doomed'} when
-- another hub is deleting it.
local doom = key('files', 'doom', ARGV[1])
if safe(ARGV[1]) then
  return {'safe'}
end
if redis.call('EXISTS', doom) == 1 then
  return {'doomed'}
end
write('SET', doom, '1')
expire(doom, now() + ARGV[2])
return {'ok'}
