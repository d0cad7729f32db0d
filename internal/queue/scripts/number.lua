-- Takes the next number of a tenant.
--
-- ARGV[1] tenant
--
-- Output: {'ok', number}
return {'ok', int(next_number(ARGV[1]))}
