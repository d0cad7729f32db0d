-- Writes the way a script that accepts a job does, but changes nothing except what scripts record
-- anyway: the time. It publishes too, where nobody listens: a user of Redis may be allowed the keys
-- and not the channels, and a script that is refused halfway leaves what it has written.
--
-- Output: {'ok'}
now()
redis.call('PUBLISH', key('q', 'writable'), '')
return {'ok'}
