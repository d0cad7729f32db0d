-- Removes a parcel.
--
-- ARGV[1] parcel
write('DEL', key('s', 'parcel', ARGV[1]))
return {'ok'}
