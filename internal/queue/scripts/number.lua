-- Takes the next number of a tenant.
--
-- ARGV[1] tenant
--
-- Output: {'ok', number}
return {'ok', int(write('HINCRBY', key('q', 'numbers'), ARGV[1], '1') - 1)}
