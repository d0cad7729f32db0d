-- next_number takes the next queue number of a tenant. It is above all numbers that the tenant's
-- history shows: these run ahead of the counter when a job ends after a younger one, and the next
-- job would otherwise be shown with a different number than its client was given.
local function next_number(tenant)
  local shown = tonumber(redis.call('HGET', key('q', 'raised'), tenant) or '-1')
  local next = tonumber(redis.call('HGET', key('q', 'numbers'), tenant) or '0')
  local skip = math.max(shown + 1 - next, 0)
  return write('HINCRBY', key('q', 'numbers'), tenant, int(skip + 1)) - 1
end
