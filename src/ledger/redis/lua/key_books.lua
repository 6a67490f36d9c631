-- What a key has spent in all, and its usage, as one moment has them: for the audit.
-- KEYS account, usage of the key; ARGV key
return { redis.call('HGET', KEYS[1], 'us' .. ARGV[1] .. ' t') or '0', redis.call('HGETALL', KEYS[2]) }
