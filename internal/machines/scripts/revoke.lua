-- Takes the token of a machine away.
--
-- ARGV[1] name
--
-- Output: {'1'}, or {'0'} if it had none
return {int(write('HDEL', key('g', 'machines'), ARGV[1]))}
