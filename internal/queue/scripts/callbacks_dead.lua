-- Lists events that could not be delivered, the latest first.
--
-- ARGV[1] tenant, or '' for all
-- ARGV[2] bound
--
-- Output: {'ok', tenant, id, url, attempts, error, since when, event, ...}
local out = {'ok'}
local index = ARGV[1] == '' and key('q', 'callbacks_dead') or key('q', 'callbacks_dead', ARGV[1])
local found = redis.call('ZREVRANGE', index, '0', int(tonumber(ARGV[2]) - 1), 'WITHSCORES')
for i = 1, #found, 2 do
  local dead = redis.call('HMGET', key('q', 'callback_dead', found[i]), 'tenant', 'id', 'url', 'attempts', 'error', 'event')
  if dead[1] then
    for _, v in ipairs({dead[1], dead[2], dead[3], dead[4], dead[5], int(tonumber(found[i + 1])), dead[6]}) do
      out[#out + 1] = v
    end
  end
end
return out
