-- Notes which blocks of numbers the storage has granted.
--
-- ARGV[1] epoch that asked
-- ARGV[2] how long that is remembered, in milliseconds
-- ARGV[3] tenant
-- then for each block:
--   type
--   subfolder
--   series
--   block
--   '' if it was granted, else the number after which to go on
--
-- Output: {'ok'}
for at = 4, #ARGV, 5 do
  local typ, subfolder, series, block = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local held, field = blocks(ARGV[3], typ, subfolder), pack(series, block)
  local numbers = key('files', 'numbers', pack(ARGV[3], typ, subfolder))
  if ARGV[at + 4] == '' then
    write('HSET', held, field, ARGV[1])
  else
    write('HSET', held, field, '-')
    -- A number of its own that an instance gave, far above the others, is only skipped.
    if tonumber(block) * block_size <= tonumber(redis.call('HGET', numbers, series) or '0') + 1 then
      raise(numbers, series, tonumber(ARGV[at + 4]))
    end
  end
  expire(held, now() + ARGV[2])
end
return {'ok'}
