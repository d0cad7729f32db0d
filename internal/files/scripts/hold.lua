-- Keeps blobs from being swept for a while, whether they are there yet or not.
--
-- ARGV[1] how long, in milliseconds
-- ARGV[2...] keys of blobs
--
-- Output: {'ok'}, {'doomed'} when one of them is being deleted at this moment:
-- nothing is held, come again.
for i = 2, #ARGV do
  if redis.call('EXISTS', key('files', 'doom', ARGV[i])) == 1 then
    return {'doomed'}
  end
end
for i = 2, #ARGV do
  local hold = key('files', 'hold', ARGV[i])
  write('SET', hold, '1')
  expire(hold, now() + ARGV[1])
end
return {'ok'}
