-- Replaces a request that nobody has changed since it was read.
-- ARGV: term, id, version, document
-- Output: ok, version | stale | absent | deposed
local reply = replace(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return reply
