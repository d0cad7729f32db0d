-- Reads when what still runs at stopped instances is taken back.
--
-- Output: {'ok', stop, milliseconds until then, ...}
local out = redis.call('HGETALL', key('q', 'stop_deadlines'))
for i = 2, #out, 2 do
  out[i] = int(tonumber(out[i]) - now())
end
table.insert(out, 1, 'ok')
return out
