-- Revokes an operator's token for good. The operator's record and since when, or nothing when there is no such operator.
-- KEYS operators; ARGV now, id
local id = ARGV[2]
if redis.call('HEXISTS', KEYS[1], id) == 0 then return {} end
redis.call('HSETNX', KEYS[1], 'r' .. id, string.format('%d', clock(ARGV[1])))
return redis.call('HMGET', KEYS[1], id, 'r' .. id)
