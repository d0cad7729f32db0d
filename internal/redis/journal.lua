-- The ending on the embedded server: what the script wrote goes to the journal
-- as one block, even if the script failed halfway, because its writes until then
-- have been done.
local done, reply = pcall(main)
redis.call('COMFYHUB.COMMIT')
if not done then
  error(reply, 0)
end
return reply
