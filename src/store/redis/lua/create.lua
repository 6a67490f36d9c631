-- Makes an account. False when it exists.
-- KEYS account, order of expiry; ARGV now, tier, quota (or an empty text)
local account = KEYS[1]
if redis.call('EXISTS', account) == 1 then return 'exists' end
redis.call('HSET', account, 'avail', '0', 'committed', '0', 'used', '0', 'month', '0', 'tier', ARGV[2],
  'created', string.format('%.0f', clock(ARGV[1])))
-- The order is never empty: while a cluster moves a slot, a script with a key that does not exist is not run on either side.
redis.call('ZADD', KEYS[2], '+inf', 'end')
if ARGV[3] ~= '' then redis.call('HSET', account, 'quota', ARGV[3]) end
return 'created'
