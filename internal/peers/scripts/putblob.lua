-- Adds a piece to a blob.
--
-- ARGV[1] blob
-- ARGV[2] piece
-- ARGV[3] how long the blob is kept, in milliseconds
local name = key('s', 'parcel', ARGV[1])
write('RPUSH', name, ARGV[2])
expire(name, now() + tonumber(ARGV[3]))
return {'ok'}
