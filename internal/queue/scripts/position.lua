-- Counts the jobs that are ahead of a waiting one.
--
-- ARGV[1] key
-- ARGV[2] order of the queue: 'fair' or 'fifo'
--
-- Output: {'ok', n}
--         {'missing'}
--         {'not_queued'}
local j = get(ARGV[1])
if not j then
  return {'missing'}
end
local n = j.state == 'queued' and ahead(j, ARGV[2])
if not n then
  return {'not_queued'}
end
return {'ok', int(n)}
