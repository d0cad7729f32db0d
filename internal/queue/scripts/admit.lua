-- Ends the wait for a refusal of a job: from now on one comes too late.
--
-- ARGV[1] key
--
-- Output: {'ok'}
--         {'refused', answer}  its instance has refused it; the job is gone
--         {'missing'}
local j = get(ARGV[1])
if not j then
  return {'missing'}
end
if j.refusal then
  return {'refused', j.refusal}
end
if j.door and j.door ~= '' then
  set(j, 'door', '')
  if j.state == 'queued' or runs(j) then
    call_back(j, 'queued')
    tell('queued', j)
  end
end
return {'ok'}
