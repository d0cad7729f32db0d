-- Notes a picture of an album, which comes in several messages.
-- ARGV: lane, field, document, ms to keep, how many pictures of a lane at most
-- Output: ok
local album = key('album', ARGV[1])
if redis.call('HLEN', album) >= tonumber(ARGV[5]) then
  write('DEL', album)
end
write('HSET', album, ARGV[2], ARGV[3])
write('PEXPIREAT', album, int(now() + tonumber(ARGV[4])))
return {'ok'}
