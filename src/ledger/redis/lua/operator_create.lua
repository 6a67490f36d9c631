-- Makes an operator, unless it is there, or there are too many.
-- KEYS operators; ARGV id, record, the most fields
-- An operator has a field of its id, and once its token is revoked another one: r<id>, since when.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 'exists' end
if redis.call('HLEN', KEYS[1]) - ARGV[3] >= 0 then return 'full' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 'created'
