-- Gives an uploaded file its name, by ComfyUI's rule: if the name is taken by other bytes, " (1)",
-- " (2)" and so on are tried, and at each step a file with the same bytes is taken as it is. With
-- overwrite, the first name is replaced.
--
-- ARGV[1]  key of the folder (hash: name -> entry)
-- ARGV[2]  key of the folder's numbers (hash: prefix -> highest)
-- ARGV[3]  key of the type's subfolders (set)
-- ARGV[4]  subfolder
-- ARGV[5]  stem of the name
-- ARGV[6]  extension of the name, with its dot
-- ARGV[7]  sha256 of the bytes to compare with
-- ARGV[8]  '1' to overwrite
-- ARGV[9]  prefix of the name's counter
-- ARGV[10] the counter, '' when the name has none
-- ARGV[11] entry; '' to learn the name and write nothing
-- ARGV[12] tenant
-- ARGV[13] type
-- ARGV[14] bound of the bytes of the tenant's uploads, 0 for none
-- ARGV[15] bound of their number, 0 for none
-- ARGV[16] '1' to ask whether there is room and write nothing
-- ARGV[17] how long the trash keeps what is overwritten, in milliseconds; '' for not at all
--
-- Output: {'same', name} for bytes that were there, {'new', name},
-- {'full', bound} when the tenant has no room for more, {'more'} when many names are
-- taken of which no series knows: come again,
-- {'unsafe'} when the blob may have been swept: hold it, write it, come again.
local folder, sha256, entry = ARGV[1], ARGV[7], ARGV[11]
local name = ARGV[5] .. ARGV[6]
local former = redis.call('HGET', folder, name)

-- use notes that the file is being used now.
local function use()
  touch(ARGV[12], ARGV[13], ARGV[4], name, int(now()), redis.call('HGET', folder, name))
end

if ARGV[8] ~= '1' and former then
  local same = hasContent(former, sha256)
  if not same then
    name, same = findName(ARGV[12], ARGV[13], ARGV[4], folder, ARGV[5], ARGV[6], sha256)
    former = nil
  end
  if not name then
    return {'more'}
  end
  if same then
    if entry ~= '' and ARGV[16] ~= '1' then
      use()
    end
    return {'same', name}
  end
end
if entry == '' then
  return {'new', name}
end
local full = excess(ARGV[12], entry, former, tonumber(ARGV[14]), tonumber(ARGV[15]))
if full then
  return {'full', full}
end
if ARGV[16] == '1' then
  return {'new', name}
end
local blob = blobOf(entry)
if not safe(blob) then
  return {'unsafe'}
end
count(blob)
if former then
  if blobOf(former) == blob then
    discount(blob)
  else
    discard(ARGV[12], ARGV[13], ARGV[4], name, former, 'overwritten', ARGV[17], tonumber(ARGV[14]))
  end
  weigh(former, -1, ARGV[12], ARGV[13], ARGV[4], name)
  discharge(ARGV[12], former)
end
charge(ARGV[12], entry)
write('HSET', folder, name, entry)
named(ARGV[12], ARGV[13], ARGV[4], name, entry)
write('SADD', ARGV[3], ARGV[4])
use()
if ARGV[10] ~= '' then
  raise(ARGV[2], ARGV[9], tonumber(ARGV[10]))
end
return {'new', name}
