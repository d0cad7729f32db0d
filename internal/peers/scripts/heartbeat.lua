-- Records that a hub is alive.
--
-- ARGV[1] hub
-- ARGV[2] how long it counts as alive, in milliseconds
write('SET', key('s', 'hub', ARGV[1]), '1')
expire(key('s', 'hub', ARGV[1]), now() + tonumber(ARGV[2]))
return {'ok'}
