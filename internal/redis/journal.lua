-- The embedded server's ending: what the script wrote goes to the journal as
-- one block, also when it failed in the middle, because what it did until
-- then has been done.
local done, reply = pcall(main)
redis.call('COMFYHUB.COMMIT')
if not done then
  error(reply, 0)
end
return reply
