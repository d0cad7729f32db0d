-- What tenants have used, by day, for bills. Scripts of other packages have this as a
-- library, so that what is billed is written with what has happened, once.
--
-- usage:DAY has the days since 1970 by UTC: KIND:TENANT -> how much. A day with too many
-- tenants counts further ones as the tenant ''.

-- BILLED_DAYS is how long a day is kept, BILLED_MOST how many counts it has.
local BILLED_DAYS, BILLED_MOST, DAY_MS = 400, 50000, 86400000

-- bill adds to what a tenant has used today.
local function bill(tenant, kind, amount)
  if amount <= 0 then
    return
  end
  local day = math.floor(now() / DAY_MS)
  local all, field = key('usage', int(day)), kind .. ':' .. tenant
  -- One command for most bills: only a new count is as much as was added to it.
  if write('HINCRBY', all, field, int(amount)) ~= tonumber(int(amount)) then
    return
  end
  if redis.call('HLEN', all) > BILLED_MOST then
    write('HDEL', all, field)
    write('HINCRBY', all, kind .. ':', int(amount))
  end
  write('PEXPIREAT', all, int((day + 1 + BILLED_DAYS) * DAY_MS))
end
