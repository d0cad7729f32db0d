-- Forgets something that waits for its user.
-- ARGV: term, who, id
-- Output: ok | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
write('DEL', key('v', 'held', ARGV[3]))
write('ZREM', key('holds', ARGV[2]), ARGV[3])
return {'ok'}
