-- Notes which expiry of a key was told, unless the key is gone: that leaves nothing of it behind.
-- KEYS key; ARGV expiry (ms)
if redis.call('HEXISTS', KEYS[1], 'record') == 0 then return 0 end
redis.call('HSET', KEYS[1], 'told', ARGV[1])
return 1
