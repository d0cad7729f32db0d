-- Ends what doom.lua began: the blob was deleted, or could not be.
--
-- ARGV[1] key of the blob
--
-- Output: {'ok'}
write('DEL', key('files', 'doom', ARGV[1]))
return {'ok'}
