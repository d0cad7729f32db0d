-- Records that a hub has stopped.
--
-- ARGV[1] hub
write('DEL', key('s', 'hub', ARGV[1]))
redis.call('PUBLISH', key('s', 'hubs'), pack('left', ARGV[1]))
return {'ok'}
