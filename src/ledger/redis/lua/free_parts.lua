-- Frees what counts under limits (spend.lua) and is no open hold any more, for a gateway of a version without limits has closed it. How many
-- there were.
-- KEYS account
local account = KEYS[1]
local _, _, free_part = holds()
local fields, freed = redis.call('HGETALL', account), 0
for at = 1, #fields, 2 do
  local id = string.sub(fields[at], 1, 2) == 'uh' and string.sub(fields[at], 3)
  if id and redis.call('HEXISTS', account, 'h' .. id) == 0 then
    free_part(account, id, fields[at + 1])
    -- What it held kept old periods from being forgotten (spend.lua): they are looked through again.
    local key = string.match(fields[at + 1], '^%d+ (%S+)')
    if key then redis.call('HDEL', account, 'ud' .. key) end
    freed = freed + 1
  end
end
return freed
