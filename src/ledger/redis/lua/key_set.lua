-- Changes a key's record, unless somebody else has meanwhile, and tells every node. A rotation changes none that is revoked.
-- KEYS key; ARGV the record before, the record, channel, message, and of a rotation the key that takes its place
local key = KEYS[1]
if redis.call('HGET', key, 'record') ~= ARGV[1] then return 'changed' end
if ARGV[5] and redis.call('HEXISTS', key, 'revoked') == 1 then return 'revoked' end
redis.call('HSET', key, 'record', ARGV[2])
if ARGV[5] then redis.call('HSET', key, 'successor', ARGV[5]) end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 'set'
