-- Returns how much of its limits a tenant is using.
--
-- ARGV[1] tenant
-- ARGV[2] how many milliseconds of instances it may use in a day, '0' for no limit
--
-- Output: {'ok', number of its runs that count, milliseconds used within a day,
--          milliseconds until it may go on}
local sum, wait = spent(ARGV[1], tonumber(ARGV[2]))
return {'ok', int(redis.call('SCARD', key('q', 'seats', ARGV[1]))), int(sum), int(ARGV[2] ~= '0' and wait or 0)}
