-- Reads all names.
--
-- Output: {name, when its agent was last here in milliseconds and its key, ...}
return redis.call('HGETALL', key('g', 'pins'))
