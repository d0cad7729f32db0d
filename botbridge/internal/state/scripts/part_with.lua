-- Forgets what is kept about a user, but for requests and what an operator has decided.
-- ARGV: term, who, kinds of values
-- Output: ok | deposed
if deposed(ARGV[1]) then
  return {'deposed'}
end
local who = ARGV[2]
for i = 3, #ARGV do
  write('DEL', key('v', ARGV[i], who))
end
local list = key('holds', who)
for _, id in ipairs(redis.call('ZRANGE', list, '0', '-1')) do
  write('DEL', key('v', 'held', id))
end
write('DEL', list)
-- Unfinished requests stay known, so that they can be forgotten later.
local mine, live = key('mine', who), key('live', who)
for _, id in ipairs(redis.call('ZRANGE', mine, '0', '-1')) do
  if not redis.call('ZSCORE', live, id) then
    write('ZREM', mine, id)
  end
end
return {'ok'}
