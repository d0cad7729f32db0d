-- deposed tells whether another process has taken over since the caller
-- became the one that acts. Term 0 is of a process that never did: it may only
-- admit.
local function deposed(term)
  return redis.call('GET', key('term')) ~= term
end

-- saved tells whether a document is already what follows the version that its
-- writer knows: he comes again, because the answer was lost.
local function saved(request, version, known, doc)
  return version == int(tonumber(known) + 1) and redis.call('HGET', request, 'doc') == doc
end
