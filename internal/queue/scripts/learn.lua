-- Stores lessons about what instances check.
--
-- ARGV[1] bound of lessons
-- ARGV[2] how long they are kept, in milliseconds
-- ARGV[3...] lessons
--
-- Output: {'ok'}
local lessons = key('q', 'lessons')
for i = 3, #ARGV do
  write('ZADD', lessons, int(now()), ARGV[i])
end
write('ZREMRANGEBYSCORE', lessons, '-inf', int(now() - tonumber(ARGV[2])))
write('ZREMRANGEBYRANK', lessons, '0', int(-1 - tonumber(ARGV[1])))
return {'ok'}
