-- Takes an agent's name from its key.
--
-- ARGV[1] name
--
-- Output: {how many names were forgotten}
return {int(write('HDEL', key('g', 'pins'), ARGV[1]))}
