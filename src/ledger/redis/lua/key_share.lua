-- Has a new key count as the one that it comes in place of, or as what that one counts as, when what it spends is counted (spend.lua). The
-- key that both count under, or an empty text.
-- KEYS account; ARGV new key, old key
local account, key = KEYS[1], ARGV[2]
local as = redis.call('HGET', account, 'ul' .. key)
if not as then return '' end
if as ~= '1' then key = as end
redis.call('HSET', account, 'ul' .. ARGV[1], key)
return key
