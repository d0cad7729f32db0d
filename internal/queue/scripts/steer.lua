-- Changes when a waiting job will run, as its owner wishes.
--
-- ARGV[1] key
-- ARGV[2] priority, -100 to 100, or '' to leave it
-- ARGV[3] 'front' or 'end' of the jobs of its tenant that have its priority, or ''
-- ARGV[4] '1' to pause it, '0' to resume it, or ''
--
-- Output: {'ok', job...}, {'missing'} or {'not_queued'}
local j = get(ARGV[1])
if not j or at_door(j) then
  return {'missing'}
end
if j.state ~= 'queued' then
  return {'not_queued'}
end
unwait(j)
unlist(j)
if ARGV[2] ~= '' then
  set(j, 'priority', ARGV[2])
end
-- A rank is the mark of the band, the priority in three digits, the place in sixteen, the turn, and
-- the key.
local band = band_of(j.rank)
local at = #band
local rank = band .. string.format('%03d', 100 - tonumber(j.priority)) .. string.sub(j.rank, at + 4)

-- behind_all returns the rank behind the last job of the priority: at the same place, with a later
-- turn. A higher place might be behind many jobs that come later.
local function behind_all()
  local waits, probe = key('q', 'waits' .. band, j.tenant), string.sub(rank, 1, at + 4) .. '~'
  write('ZADD', waits, '0', probe)
  local n = redis.call('ZRANK', waits, probe)
  write('ZREM', waits, probe)
  local last = n > 0 and redis.call('ZRANGE', waits, int(n - 1), int(n - 1))[1]
  if not last or string.sub(last, 1, at + 4) ~= string.sub(rank, 1, at + 4) then
    return rank
  end
  local turn = write('HINCRBY', key('q', 'counters'), 'turns', '1')
  return string.sub(last, 1, at + 21) .. string.format('%016.0f', turn) .. ':' .. j.key
end

if ARGV[3] == 'front' then
  rank = band .. rank_prefix(tonumber(j.priority), 0 - next_number(j.tenant)) .. string.sub(rank, at + 22)
elseif ARGV[3] == 'end' then
  rank = behind_all()
end
if ARGV[3] ~= '' then
  -- It has left its place among its caller's jobs. If it kept that place, claiming it would move
  -- the tenant's turn there, past whatever others have waiting.
  write('HDEL', job_key(j.key), 'place')
end
set(j, 'rank', rank)
if ARGV[4] ~= '' then
  set(j, 'paused', ARGV[4])
end
list(j)
wait(j)
tell('queued', j)
return answer('ok', j.key)
