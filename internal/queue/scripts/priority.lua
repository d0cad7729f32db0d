-- Moves a waiting job to another priority.
--
-- ARGV[1] key
-- ARGV[2] priority, -100 to 100
--
-- Output: {'ok', job...}, {'missing'} or {'not_queued'}
local j = get(ARGV[1])
if not j then
  return {'missing'}
end
if j.state ~= 'queued' then
  return {'not_queued'}
end
unwait(j)
unlist(j)
-- A rank begins with the priority, in three digits.
set(j, 'priority', ARGV[2], 'rank', string.format('%03d', 100 - tonumber(ARGV[2])) .. string.sub(j.rank, 4))
list(j)
wait(j)
tell('queued', j)
return answer('ok', j.key)
