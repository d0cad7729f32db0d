-- Reads when whatever is still running on stopped instances is taken back.
--
-- Output: {'ok', stop, the time of that, milliseconds until then, ...}
local out, all = {'ok'}, redis.call('HGETALL', key('q', 'stop_deadlines'))
for i = 1, #all, 2 do
  out[#out + 1] = all[i]
  out[#out + 1] = all[i + 1]
  out[#out + 1] = int(tonumber(all[i + 1]) - now())
end
return out
