-- Changes what is known about the run of a job at an endpoint, if nobody else has meanwhile, and
-- counts the money.
--
-- ARGV[1] key of the job
-- ARGV[2] the record as it was read; '' for none
-- ARGV[3] the record as it is to be; '' removes it
-- ARGV[4] endpoint
-- ARGV[5] change in what is set aside for its runs, in millionths
-- ARGV[6] what the run has cost, in millionths
-- ARGV[7] tenant that has caused that
-- ARGV[8] what a day may cost, in millionths; '' to ask for no permission
--
-- Output: {'ok'}, {'changed', the record as it is}, {'budget'} if the day has no money left
--
-- overflow:runs has the records by job. overflow:money has for each endpoint spent:ENDPOINT (of
-- the day day:ENDPOINT, since 1970 by UTC) and aside:ENDPOINT.
local runs, money = key('overflow', 'runs'), key('overflow', 'money')
local have = redis.call('HGET', runs, ARGV[1]) or ''
if have ~= ARGV[2] then
  return {'changed', have}
end
local today = math.floor(now() / 86400000)
local day = tonumber(redis.call('HGET', money, 'day:' .. ARGV[4]) or '0')
local spent = day == today and tonumber(redis.call('HGET', money, 'spent:' .. ARGV[4]) or '0') or 0
local aside = tonumber(redis.call('HGET', money, 'aside:' .. ARGV[4]) or '0')
if ARGV[8] ~= '' and spent + aside >= tonumber(ARGV[8]) then
  return {'budget'}
end
if ARGV[3] == '' then
  write('HDEL', runs, ARGV[1])
else
  write('HSET', runs, ARGV[1], ARGV[3])
end
local change, cost = tonumber(ARGV[5]), tonumber(ARGV[6])
if change ~= 0 then
  write('HSET', money, 'aside:' .. ARGV[4], int(math.max(aside + change, 0)))
end
if cost > 0 then
  write('HSET', money, 'day:' .. ARGV[4], int(today), 'spent:' .. ARGV[4], int(spent + cost))
  bill(ARGV[7], 'micros', cost)
end
return {'ok'}
