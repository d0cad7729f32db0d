-- Lists events waiting to be delivered: the first of each job's line.
--
-- ARGV[1] tenant, or '' for all
-- ARGV[2] bound
--
-- Output: {'ok', tenant, id, url, attempts, error, when it is due, event, ...}
local out, left = {'ok'}, tonumber(ARGV[2])
local tenants = {ARGV[1]}
if ARGV[1] == '' then
  tenants = redis.call('ZRANGE', key('q', 'callback_tenants'), '0', int(left - 1))
end
for _, tenant in ipairs(tenants) do
  local due = redis.call('ZRANGE', key('q', 'callbacks_due', tenant), '0', int(left - 1), 'WITHSCORES')
  for i = 1, #due, 2 do
    local item = redis.call('LINDEX', line_key(due[i]), '0')
    if item and left > 0 then
      local call = redis.call('HMGET', call_key(due[i]), 'id', 'url', 'attempts', 'error')
      for _, v in ipairs({tenant, call[1] or '', call[2] or '', call[3] or '0', call[4] or '', int(tonumber(due[i + 1])),
                          string.sub(item, string.find(item, ' ', 1, true) + 1)}) do
        out[#out + 1] = v
      end
      left = left - 1
    end
  end
  if left == 0 then
    break
  end
end
return out
