-- Ends a waiting job: queued -> failed.
--
-- ARGV[1] key
-- ARGV[2] history entry
-- ARGV[3] summary
-- ARGV[4] reason
-- ARGV[5] bound of history entries
-- ARGV[6] bound of their bytes
-- ARGV[7] bound of the entries of one tenant
--
-- Output: {'ok'}
--         {'missing'}
--         {'not_queued'}
local j = get(ARGV[1])
if not j then
  return {'missing'}
end
if j.state ~= 'queued' then
  return {'not_queued'}
end
unwait(j)
return_place(j)
finish(j, 'failed', ARGV[2], ARGV[3], ARGV[4])
trim(j, ARGV[5], ARGV[6], ARGV[7])
return {'ok'}
