-- Gives outputs of one instance their names at the hub.
--
-- A source that is known keeps its name. Another keeps the name it has on its
-- instance where that is free. Names with a counter that are not free get the
-- next number of their prefix; all new ones of a prefix move together, so that
-- a batch stays consecutive and files that share a number go on sharing it.
-- Other names get " (1)", " (2)" and so on.
--
-- ARGV[1] key of the sources known (hash: source id -> name)
-- ARGV[2] until when they are remembered, in milliseconds
-- ARGV[3] tenant
-- ARGV[4] how long the run that shows them may go on, in milliseconds; its end
--         then is their last use
-- then for each source:
--   key of the folder (hash: name -> entry)
--   key of the folder's numbers (hash: prefix -> highest)
--   key of the type's subfolders (set)
--   type
--   subfolder
--   source id
--   name on the instance
--   prefix of the counter, or stem of the name
--   the counter, '' when the name has none
--   digits of the counter
--   what follows the counter, or extension of the name
--   entry
--
-- Output: {'ok', name, name, ...} in the order of the sources.
local known = ARGV[1]
local items, groups = {}, {}
for at = 5, #ARGV, 12 do
  local item = {
    folder = ARGV[at], numbers = ARGV[at + 1], folders = ARGV[at + 2], typ = ARGV[at + 3], subfolder = ARGV[at + 4],
    source = ARGV[at + 5], own = ARGV[at + 6], stem = ARGV[at + 7], number = tonumber(ARGV[at + 8]),
    width = tonumber(ARGV[at + 9]), ending = ARGV[at + 10], entry = ARGV[at + 11],
  }
  items[#items + 1] = item
  local name = redis.call('HGET', known, item.source)
  local entry = name and redis.call('HGET', item.folder, name)
  if entry and isFrom(entry, item.source) then
    item.name = name
  elseif item.number then
    local id = pack(item.numbers, item.stem)
    local group = groups[id] or {lowest = item.number, moved = false}
    group.lowest = math.min(group.lowest, item.number)
    group.moved = group.moved or redis.call('HEXISTS', item.folder, item.own) == 1
    item.group, groups[id] = group, group
  end
end
for _, item in ipairs(items) do
  local group = item.group
  if group and not group.shift then
    group.shift = 0
    if group.moved then
      group.shift = tonumber(redis.call('HGET', item.numbers, item.stem) or '0') + 1 - group.lowest
    end
  end
end

local function numberedName(item, number)
  local digits = int(number)
  return item.stem .. '_' .. string.rep('0', item.width - #digits) .. digits .. item.ending
end

for _, item in ipairs(items) do
  if not item.name then
    if item.group then
      local number = item.number + item.group.shift
      item.name = numberedName(item, number)
      if redis.call('HEXISTS', item.folder, item.name) == 1 then
        -- Only when one call names the same file twice.
        number = tonumber(redis.call('HGET', item.numbers, item.stem) or '0') + 1
        item.name = numberedName(item, number)
      end
      raise(item.numbers, item.stem, number)
    else
      local i = 0
      item.name = item.own
      while redis.call('HEXISTS', item.folder, item.name) == 1 do
        i = i + 1
        item.name = item.stem .. ' (' .. i .. ')' .. item.ending
      end
    end
    write('HSET', item.folder, item.name, item.entry)
    write('SADD', item.folders, item.subfolder)
    write('HSET', known, item.source, item.name)
  end
end
write('PEXPIREAT', known, ARGV[2])
local reply = {'ok'}
for i, item in ipairs(items) do
  touch(ARGV[3], item.typ, item.subfolder, item.name, int(now() + ARGV[4]), redis.call('HGET', item.folder, item.name))
  reply[i + 1] = item.name
end
return reply
