-- Makes an account, unless it exists and another step has made it.
-- KEYS account, order of expiry; ARGV now, tier, and each of these or an empty text: quota, the terms and low_balance, both as terms.lua keeps
-- them; and a text that no other step has (made.lua)
local account, now = KEYS[1], clock(ARGV[1])
local exists = redis.call('EXISTS', account) == 1
local is_again, steps = made(account, ARGV[6], now)
if exists then return is_again and 'created' or 'exists' end
redis.call('HSET', account, 'avail', '0', 'committed', '0', 'used', '0', 'month', '0', 'tier', ARGV[2],
  'created', string.format('%d', now), 'um', steps)
-- The order is never empty: while a cluster moves a slot, a script with a key that does not exist is not run on either side.
-- A text of more than 64 bytes makes Redis keep account and order as tables: in a small list every step would search from the start.
local long = 'This text is here so that Redis finds every field at once, without a search.'
redis.call('ZADD', KEYS[2], '+inf', long)
redis.call('HSET', account, 'about', long)
if ARGV[3] ~= '' then redis.call('HSET', account, 'quota', ARGV[3]) end
if ARGV[4] ~= '' then redis.call('HSET', account, 'ut', ARGV[4]) end
if ARGV[5] ~= '' then redis.call('HSET', account, 'uel', ARGV[5]) end
return 'created'
