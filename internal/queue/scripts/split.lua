-- Has a job that runs made in parts: its own run makes the first, and the others are jobs that no
-- listing shows. Those that are there already stay as they are. A run that is given no parts makes the
-- whole from now on, and so do its next ones.
--
-- ARGV[1] key
-- ARGV[2] fence
-- ARGV[3] class of the parts
-- ARGV[4] requirements of that class
-- ARGV[5] '1' if no other hub can be here
-- ARGV[6...] of each part: its key, body, the bytes that this counts for, and shape
--
-- Output: {'ok', job...}
--         {'stale'}
--         {'cancelled'}  its cancel was requested: the holder must end it
--         {'closed'}     it is made as a whole, or a hub here does not know parts
local j = held(ARGV[1], ARGV[2])
if not j then
  return {'stale'}
end
if j.cancel then
  return {'cancelled'}
end
local keys = {}
for i = 6, #ARGV, 4 do
  keys[#keys + 1] = ARGV[i]
end
local parts = table.concat(keys, ' ')
if parts == '' then
  if j.parts then
    end_parts(j)
  end
  set(j, 'parts', 'whole')
  return record('ok', j)
end
if not j.parts then
  -- All hubs listen, of whatever version, and those that know parts say so.
  if ARGV[5] ~= '1' and tell('splitting', j) > redis.call('ZCOUNT', key('q', 'hubs', 'parts'), int(now()), '+inf') then
    return {'closed'}
  end
  set(j, 'parts', parts)
elseif j.parts ~= parts then
  return {'closed'}
end
for i = 6, #ARGV, 4 do
  local p = {key = ARGV[i]}
  if redis.call('EXISTS', job_key(p.key)) == 0 then
    -- One that is made again has a fence above those of its former runs, see restore.lua.
    local fence = redis.call('EXISTS', key('q', 'forgotten', p.key)) == 1 and int(now() + 1) or '0'
    set(p, 'v', '1', 'id', j.id, 'tenant', j.tenant, 'caller', '', 'client', '', 'class', ARGV[3], 'priority', j.priority,
      'hash', '', 'number', j.number, 'rank', string.sub(j.rank, 1, #j.rank - #j.key) .. p.key, 'state', 'queued',
      'weight', ARGV[i + 2], 'fence', fence, 'attempts', '0', 'created', int(now()), 'shape', ARGV[i + 3], 'parent', j.key)
    write('SET', key('q', 'body', p.key), ARGV[i + 1])
    write('DEL', key('q', 'forgotten', p.key))
    if write('HINCRBY', key('q', 'class', p.class), 'live', '1') == 1 then
      write('HSET', key('q', 'class', p.class), 'requires', ARGV[4])
    end
    wait(p)
    tell_waits(p)
  end
end
return record('ok', j)
