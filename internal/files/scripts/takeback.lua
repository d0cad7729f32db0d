-- Gives a name in the trash back to its file. An upload that has the name now takes its place in
-- the trash.
--
-- ARGV[1] tenant
-- ARGV[2] the name as the trash has it
-- ARGV[3] key of the folder (hash: name -> entry)
-- ARGV[4] key of the type's subfolders (set)
-- ARGV[5] how long the trash keeps what had the name, in milliseconds
--
-- Output: {'ok', entry}
--         {'missing'}  it is not in the trash any more
--         {'taken'}    an output of another run has the name by now
local tenant = ARGV[1]
if not redis.call('ZSCORE', trash(tenant), ARGV[2]) then
  return {'missing'}
end
local parts = unpacked(ARGV[2])
local typ, subfolder, name = parts[1], parts[2], parts[3]
local former = redis.call('HGET', ARGV[3], name)
if former and not isUpload(former) then
  return {'taken'}
end
local entry = take_out(tenant, ARGV[2])
if former then
  discharge(tenant, former)
  discard(tenant, typ, subfolder, name, former, 'overwritten', ARGV[5], 0)
end
weigh(entry, 1, tenant, typ, subfolder, name)
charge(tenant, entry)
write('HSET', ARGV[3], name, entry)
named(tenant, typ, subfolder, name, entry)
write('SADD', ARGV[4], subfolder)
touch(tenant, typ, subfolder, name, int(now()), entry)
return {'ok', entry}
