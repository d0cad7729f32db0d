-- Removes a job that was removed while it waited, if Redis has lost that.
--
-- ARGV[1] key
-- ARGV[2] life of a tombstone in milliseconds
--
-- Output: {'ok'}    it was there
--         {'kept'}  it was not
local k = ARGV[1]
local j = get(k)
if not j then
  stay_gone(k)
  return {'kept'}
end
if j.state == 'queued' then
  withdraw(j, ARGV[2])
elseif runs(j) and not j.withdrawn then
  take_back(j, ARGV[2])
else
  return {'kept'}
end
return {'ok'}
