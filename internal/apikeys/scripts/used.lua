-- Reads when keys were used last.
--
-- Output: {name, when in milliseconds, ...}
return redis.call('HGETALL', key('g', 'apikeys', 'used'))
