-- Replaces an entry if it is still as it was read.
--
-- ARGV[1] key of the folder (hash: name -> entry)
-- ARGV[2] name
-- ARGV[3] entry as it was read
-- ARGV[4] entry to write
-- ARGV[5] tenant
-- ARGV[6] type
-- ARGV[7] subfolder
-- ARGV[8] when the new entry's blob began to be written, in milliseconds; '' if it has
--         a name or is held
-- ARGV[9] how old a blob may be that is not held, in milliseconds. No sweep looks at
--         one that is younger than an hour.
--
-- Output: {'ok'}, {'changed'} when the entry is another or gone by now,
-- {'unsafe'} when the blob may have been swept.
local former = redis.call('HGET', ARGV[1], ARGV[2])
if former ~= ARGV[3] then
  return {'changed'}
end
-- isYoung reports whether a blob was written so recently that no sweep has looked at it. One that
-- is being deleted does not count as young, whatever the clocks say.
local function isYoung(blob)
  return ARGV[8] ~= '' and math.abs(now() - tonumber(ARGV[8])) < tonumber(ARGV[9])
    and redis.call('EXISTS', key('files', 'doom', blob)) == 0
end

local from, to = blobOf(former), blobOf(ARGV[4])
if from ~= to then
  if to ~= '' and not safe(to) and not isYoung(to) then
    return {'unsafe'}
  end
  count(to)
  discount(from)
  weigh(ARGV[4], 1, ARGV[5], ARGV[6], ARGV[7], ARGV[2])
  bill(ARGV[5], 'bytes', weight(ARGV[4]) - weight(former))
  weigh(former, -1, ARGV[5], ARGV[6], ARGV[7], ARGV[2])
end
write('HSET', ARGV[1], ARGV[2], ARGV[4])
named(ARGV[5], ARGV[6], ARGV[7], ARGV[2], ARGV[4])
return {'ok'}
