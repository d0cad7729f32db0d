-- Counts the jobs that are ahead of waiting ones.
--
-- ARGV[1] order of the queue: 'fair' or 'fifo'
-- ARGV[2...] for each job its rank and its tenant
--
-- Output: {'ok', n, n, ...}; -1 for a job that is not waiting there
local ahead, out = counter(ARGV[1]), {'ok'}
for i = 2, #ARGV, 2 do
  out[#out + 1] = int(ahead(ARGV[i], ARGV[i + 1]) or -1)
end
return out
