-- Lists the names that belong to somebody.
--
-- ARGV[1] how long a name is kept that nobody uses, in milliseconds
--
-- Output: {name, key, since when the name has been the key's in milliseconds, ...}; 0 for
-- those that were there before this was written down
local all, sinces, out = key('g', 'pins'), key('g', 'pinsince'), {}
local list = redis.call('HGETALL', all)
for i = 1, #list, 2 do
  local at, owner = string.match(list[i + 1], '^(%d+) (.+)$')
  if owner and now() - tonumber(at) <= tonumber(ARGV[1]) then
    local since, whose = string.match(redis.call('HGET', sinces, list[i]) or '', '^(%d+) (.+)$')
    out[#out + 1] = list[i]
    out[#out + 1] = owner
    out[#out + 1] = whose == owner and since or '0'
  end
end
return out
