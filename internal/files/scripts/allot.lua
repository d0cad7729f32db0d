-- Gives outputs of one instance their names at the hub.
--
-- A known source keeps its name. Another keeps the name that it has on its instance if that is
-- free. Names with a counter that are not free get the next number of their prefix; all new ones of
-- a prefix move together, so that a batch stays consecutive and files that share a number go on
-- sharing it. Other names get " (1)", " (2)" and so on, above the highest given before.
--
-- ARGV[1] key of the sources known (hash: source id -> name)
-- ARGV[2] how long they are remembered, in milliseconds
-- ARGV[3] tenant
-- ARGV[4] how long the run that shows them may go on, in milliseconds; its end
--         then is their last use
-- ARGV[5] '1' if Redis may lose what it has confirmed, so that the storage must
--         have granted the numbers
-- then for each source:
--   key of the folder (hash: name -> entry)
--   key of the folder's numbers (hash: series -> highest)
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
-- Output: {'ok', name, entry, name, entry, ...} in the order of the sources; the entry
-- is the one that a known source has, '' for a new one. Or {'reserve', epoch, type, subfolder, series, block, ...}: nothing is written, and
-- the storage has to grant these blocks first.
local known = ARGV[1]
local era = ARGV[5] == '1' and epoch() or ''
local items, groups = {}, {}

local function isTaken(item, name)
  return redis.call('HEXISTS', item.folder, name) == 1
end

local function holder(item, number)
  return redis.call('HGET', item.blocks, pack(item.series, int(blockOf(number))))
end

-- usable reports whether the number may be used: its block is free or belongs to this epoch.
local function usable(item, number)
  local by = era ~= '' and holder(item, number)
  return not by or by == era
end

local function nameOf(item, number)
  if not item.bare then
    local digits = int(number)
    return item.stem .. '_' .. string.rep('0', item.width - #digits) .. digits .. item.ending
  end
  return number == 0 and item.own or item.stem .. ' (' .. int(number) .. ')' .. item.ending
end

local function highest(item)
  return tonumber(redis.call('HGET', item.numbers, item.series) or '0')
end

-- clear returns the smallest shift, starting at one, that gives some files of a series names that
-- are free.
local function clear(some, shift)
  local again = true
  while again do
    again = false
    for _, item in ipairs(some) do
      local number = item.number + shift
      if not usable(item, number) then
        shift, again = (blockOf(number) + 1) * block_size - item.number, true
      elseif isTaken(item, nameOf(item, number)) then
        shift, again = shift + 1, true
      end
    end
  end
  return shift
end

for at = 6, #ARGV, 12 do
  local item = {
    folder = ARGV[at], numbers = ARGV[at + 1], folders = ARGV[at + 2], typ = ARGV[at + 3], subfolder = ARGV[at + 4],
    source = ARGV[at + 5], own = ARGV[at + 6], stem = ARGV[at + 7], number = tonumber(ARGV[at + 8]),
    width = tonumber(ARGV[at + 9]), ending = ARGV[at + 10], entry = ARGV[at + 11],
  }
  items[#items + 1] = item
  local name = redis.call('HGET', known, item.source)
  local entry = name and redis.call('HGET', item.folder, name)
  if entry and isFrom(entry, item.source) then
    item.name, item.had = name, entry
  else
    item.bare = not item.number
    item.number = item.number or 0
    item.series = item.bare and pack(item.stem, item.ending) or item.stem
    item.blocks = blocks(ARGV[3], item.typ, item.subfolder)
    local id = pack(item.numbers, item.series)
    local group = groups[id] or {lowest = item.number, moved = false, top = highest(item)}
    group.lowest = math.min(group.lowest, item.number)
    group.moved = group.moved or isTaken(item, item.own) or not usable(item, item.number)
    group[#group + 1] = item
    item.group, groups[id] = group, group
  end
end

-- First find all names, because nothing may be written before their blocks are granted.
local given, asked, wanted = {}, {}, {'reserve', era}
for _, item in ipairs(items) do
  local group = item.group
  if group then
    group.shift = group.shift or group.moved and clear(group, group.top + 1 - group.lowest) or 0
    local number = item.number + group.shift
    if given[pack(item.folder, nameOf(item, number))] then
      -- Only if one call names the same file twice.
      number = item.number + clear({item}, group.top + 1 - item.number)
    end
    group.top = math.max(group.top, number)
    item.to, item.name = number, nameOf(item, number)
    given[pack(item.folder, item.name)] = true
    local block = int(blockOf(number))
    local id = pack(item.blocks, item.series, block)
    if era ~= '' and not asked[id] and not holder(item, number) then
      asked[id] = true
      for _, part in ipairs({item.typ, item.subfolder, item.series, block}) do
        wanted[#wanted + 1] = part
      end
    end
  end
end
if #wanted > 2 then
  return wanted
end

for _, item in ipairs(items) do
  if item.group then
    raise(item.numbers, item.series, item.to)
    write('HSET', item.folder, item.name, item.entry)
    write('SADD', item.folders, item.subfolder)
    write('HSET', known, item.source, item.name)
  end
end
expire(known, now() + ARGV[2])
local reply = {'ok'}
for _, item in ipairs(items) do
  touch(ARGV[3], item.typ, item.subfolder, item.name, int(now() + ARGV[4]), item.had or item.entry)
  reply[#reply + 1] = item.name
  reply[#reply + 1] = item.had or ''
end
return reply
