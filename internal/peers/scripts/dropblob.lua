-- Deletes a blob.
--
-- ARGV[1] blob
write('DEL', key('s', 'parcel', ARGV[1]))
return {'ok'}
