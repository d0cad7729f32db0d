-- Keeps Redis's side of the bond with the storage (hash: id, beat).
--
-- ARGV[1] 'join' takes the id if there is none, 'adopt' in place of any, and 'beat'
--         counts on if it is the id
-- ARGV[2] id
--
-- Output: {'ok', id, beat}, {'other'} if it is another's turn to count
local bond = key('files', 'bond')
local id = redis.call('HGET', bond, 'id')
if ARGV[1] == 'beat' then
  if id ~= ARGV[2] then
    return {'other'}
  end
  write('HINCRBY', bond, 'beat', '1')
elseif ARGV[1] == 'adopt' or not id then
  id = ARGV[2]
  write('HSET', bond, 'id', id)
  write('HSET', bond, 'beat', '0')
end
return {'ok', id, redis.call('HGET', bond, 'beat') or '0'}
