-- deposed tells whether another process has taken over since the caller
-- became the one that acts. Term 0 is of a process that never did: it may only
-- admit.
local function deposed(term)
  return redis.call('GET', key('term')) ~= term
end
