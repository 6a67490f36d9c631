-- Makes what is used in the month what the rows of its days say: before and after.
-- KEYS account; ARGV now
local account, day = KEYS[1], day_of(clock(ARGV[1]))
local fact = redis.call('HMGET', account, 'avail', 'used', 'month')
if not fact[1] then return {} end
local month = month_of(day)
local counted = roll(account, day, month, fact[2])
if not counted then return { 'range', fact[2] } end
return { fact[3] - month == 0 and fact[2] or counted, counted }
