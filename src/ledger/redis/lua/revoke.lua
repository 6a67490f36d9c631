-- Revokes a key for good and tells every node. The key's fields, or nothing when there is no such key.
-- KEYS key; ARGV now, channel, message, and 1 where one that is revoked already is as one that is not there
local key = KEYS[1]
if redis.call('EXISTS', key) == 0 then return {} end
if ARGV[4] == '1' and redis.call('HEXISTS', key, 'revoked') == 1 then return {} end
redis.call('HSETNX', key, 'revoked', string.format('%d', clock(ARGV[1])))
redis.call('PUBLISH', ARGV[2], ARGV[3])
return redis.call('HMGET', key, 'record', 'revoked')
