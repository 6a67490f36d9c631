-- What a key has spent in the period that is now, and that with what its open calls hold; holds whose time is over are freed first.
-- KEYS account, order of expiry; ARGV now, key, reset
local account, now, key = KEYS[1], clock(ARGV[1]), ARGV[2]
local _, expire = holds()
local next = redis.call('HGET', account, 'next')
if next and now >= tonumber(next) then expire(account, KEYS[2], now) end
local as = redis.call('HGET', account, 'ul' .. key)
if as and as ~= '1' then key = as end
local day = day_of(now)
local period = 't'
if ARGV[3] == 'daily' then period = string.format('d%d', day) end
if ARGV[3] == 'weekly' then period = string.format('w%d', day - (day + 3) % 7) end
if ARGV[3] == 'monthly' then period = string.format('m%d', month_of(day)) end
local found = redis.call('HMGET', account, 'us' .. key .. ' ' .. period, 'uc' .. key .. ' ' .. period)
return { found[1] or '0', found[2] or '0' }
