-- Remembers a value, or forgets it when it is empty.
-- ARGV: kind, name, document, ms to keep (0: for ever)
local value = key('v', ARGV[1], ARGV[2])
if ARGV[3] == '' then
  write('DEL', value)
  return {'ok'}
end
write('SET', value, ARGV[3])
if tonumber(ARGV[4]) > 0 then
  write('PEXPIREAT', value, int(now() + tonumber(ARGV[4])))
end
return {'ok'}
