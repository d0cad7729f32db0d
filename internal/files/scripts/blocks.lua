-- What scripts know about the blocks of numbers that the storage has granted.
--
-- The numbers of a series of names come in blocks. The storage grants a block once, to one epoch of
-- Redis: a Redis that has lost its last writes is in another epoch, and never gives out a number
-- from a block that was granted before.
local block_size = 16

local function blockOf(number)
  return math.floor(number / block_size)
end

-- blocks names the known blocks of a folder (hash: packed series and block -> epoch, or '-' for a
-- block of another one).
local function blocks(tenant, typ, subfolder)
  return key('files', 'blocks', pack(tenant, typ, subfolder))
end

-- epoch changes when Redis is restarted and when a replica takes over, even if that is a server
-- that was the master before. It is '' if the server does not tell.
local function epoch()
  local info = redis.pcall('INFO', 'replication')
  return type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or ''
end
