-- Notes which storage a hub uses, and compares it with those of the others.
--
-- ARGV[1] hub
-- ARGV[2] mark of its storage; '' if it no longer uses one
-- ARGV[3] how long this is true, in milliseconds
--
-- Output: {'ok'}, {'other', hub} for one that uses another storage now
local marks = key('files', 'marks')
local flat = redis.call('HGETALL', marks)
if ARGV[2] == '' then
  write('HDEL', marks, ARGV[1])
  return {'ok'}
end
for i = 1, #flat, 2 do
  local till, mark = string.match(flat[i + 1], '^(%d+) (.*)$')
  if not till or tonumber(till) <= now() then
    write('HDEL', marks, flat[i])
  elseif flat[i] ~= ARGV[1] and mark ~= ARGV[2] then
    return {'other', flat[i]}
  end
end
write('HSET', marks, ARGV[1], int(now() + ARGV[3]) .. ' ' .. ARGV[2])
return {'ok'}
