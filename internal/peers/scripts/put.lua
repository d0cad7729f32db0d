-- Adds a piece to a parcel.
--
-- ARGV[1] parcel
-- ARGV[2] piece
-- ARGV[3] how long the parcel is kept, in milliseconds
local name = key('s', 'parcel', ARGV[1])
write('RPUSH', name, ARGV[2])
write('PEXPIREAT', name, int(now() + tonumber(ARGV[3])))
return {'ok'}
