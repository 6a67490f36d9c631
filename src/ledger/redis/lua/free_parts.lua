-- Frees what counts under limits (spend.lua) and is no open hold any more, for a gateway of a version without limits has closed it. How many
-- there were. What is apart, while a cluster moves the slot, is left for another time.
-- KEYS account
local account = KEYS[1]
local _, _, free_part, is_apart = holds()
local fields, freed = redis.call('HGETALL', account), 0
for at = 1, #fields, 2 do
  local id = string.sub(fields[at], 1, 2) == 'uh' and string.sub(fields[at], 3)
  if id and redis.call('HEXISTS', account, 'h' .. id) == 0 and not is_apart(account, fields[at + 1]) then
    free_part(account, id, fields[at + 1])
    -- What it held kept old periods from being forgotten (spend.lua): they are looked through again.
    local key = string.match(fields[at + 1], '^%d+ (%S+)')
    if key then redis.call('HDEL', account, 'ud' .. key) end
    freed = freed + 1
  end
end
return freed
