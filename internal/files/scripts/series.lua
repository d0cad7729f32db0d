-- What scripts know about the names that uploads of one name got: "a.png", "a (1).png", "a (2).png"
-- and so on. Without it each upload would try all of them, while Redis does nothing else.
--
-- A series is there once its second name was given. What it says is checked against the
-- folder, and names that it does not know are tried one by one:
--   hash: start of a sha256 -> the lowest numbers with that content, as "1 5 "; some may
--         have another one by now; '=top' -> each number up to this one is, or was, taken
--   zset: gaps, the numbers up to the top that are free again

local function nameIn(stem, ending, number)
  return number == 0 and stem .. ending or stem .. ' (' .. int(number) .. ')' .. ending
end

local function series(tenant, typ, subfolder, stem, ending)
  local id = pack(tenant, typ, subfolder, stem, ending)
  return key('files', 'series', id), key('files', 'gaps', id)
end

local function topOf(index)
  return tonumber(redis.call('HGET', index, '=top') or '0')
end

-- contentOf returns the field for an entry's content, nil if the content is not known.
local function contentOf(entry)
  local start = string.match(entry, '"sha256":"(%x+)"')
  return start and string.sub(start, 1, 20)
end

-- inSeries calls what if a name is in a series. The first name of a series is always looked at
-- directly.
local function inSeries(tenant, typ, subfolder, name, what)
  local stem, ending = string.match(name, '^(.+)(%.[^.]*)$')
  if not stem or string.match(stem, '^%.+$') then
    stem, ending = name, ''
  end
  local first, digits = string.match(stem, '^(.*) %(([1-9]%d*)%)$')
  if first and #digits < 10 then
    local index, gaps = series(tenant, typ, subfolder, first, ending)
    local number, top = tonumber(digits), topOf(index)
    if number <= top then
      what(index, gaps, number, top)
    end
  end
end

-- most_numbers bounds what is known about one content, which may have been written over many names.
-- If all of these get other contents, an upload gets a new name where ComfyUI would find one of the
-- rest.
local most_numbers = 16

-- noteContent notes that a series has a content at a number.
local function noteContent(index, entry, number)
  local content = contentOf(entry)
  if not content then
    return
  end
  local others = redis.call('HGET', index, content)
  if not others then
    write('HSET', index, content, int(number) .. ' ')
    return
  end
  local numbers = {number}
  for other in string.gmatch(others, '%d+') do
    if tonumber(other) ~= number then
      numbers[#numbers + 1] = tonumber(other)
    end
  end
  table.sort(numbers)
  local text = ''
  for i = 1, math.min(#numbers, most_numbers) do
    text = text .. int(numbers[i]) .. ' '
  end
  write('HSET', index, content, text)
end

-- named must be called when a name has got another entry.
local function named(tenant, typ, subfolder, name, entry)
  inSeries(tenant, typ, subfolder, name, function(index, _, number)
    noteContent(index, entry, number)
  end)
end

-- unnamed must be called when a name was removed.
local function unnamed(tenant, typ, subfolder, name)
  inSeries(tenant, typ, subfolder, name, function(index, gaps, number, top)
    write('ZADD', gaps, int(number), int(number))
    if redis.call('ZCARD', gaps) >= top then
      write('DEL', index)
      write('DEL', gaps)
    end
  end)
end

-- findName finds what an upload gets if its name is taken: the new name, and whether that has the
-- content already. It returns nil if there are too many names to try at once; the next call then
-- goes on.
local function findName(tenant, typ, subfolder, folder, stem, ending, sha256)
  local index, gaps = series(tenant, typ, subfolder, stem, ending)
  local top = topOf(index)
  local function entryAt(number)
    return redis.call('HGET', folder, nameIn(stem, ending, number))
  end

  local gap
  repeat
    gap = tonumber(redis.call('ZRANGE', gaps, 0, 0)[1])
    local filled = gap and entryAt(gap)
    if filled then -- by an upload of this very name
      write('ZREM', gaps, int(gap))
    end
  until not filled

  local field = string.sub(sha256, 1, 20)
  local numbers = field ~= '' and redis.call('HGET', index, field) or ''
  while numbers ~= '' do
    local at = tonumber(string.match(numbers, '^%d+'))
    if gap and at > gap then
      break
    end
    local there = entryAt(at)
    if there and hasContent(there, sha256) then
      return nameIn(stem, ending, at), true
    end
    numbers = string.match(numbers, '^%d+ (.*)$')
    if numbers == '' then
      write('HDEL', index, field)
    else
      write('HSET', index, field, numbers)
    end
  end
  if gap then
    return nameIn(stem, ending, gap), false
  end

  -- Redis does nothing else while names are tried.
  local most_tries = 250
  local number, there = top, nil
  for _ = 1, most_tries do
    number = number + 1
    there = entryAt(number)
    if not there or hasContent(there, sha256) then
      break
    end
    noteContent(index, there, number)
  end
  local same = there and hasContent(there, sha256)
  if there and not same then
    write('HSET', index, '=top', int(number))
    return nil
  end
  if number - 1 > top then
    write('HSET', index, '=top', int(number - 1))
  end
  return nameIn(stem, ending, number), same and true or false
end
