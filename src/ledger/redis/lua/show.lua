-- An account's facts and figures; holds whose time is over are freed first.
-- KEYS account, order of expiry; ARGV now
local account, order, now = KEYS[1], KEYS[2], clock(ARGV[1])
local fact = redis.call('HMGET', account, 'avail', 'next')
if not fact[1] then return false end
local _, expire = holds()
if fact[2] and now >= tonumber(fact[2]) then expire(account, order, now) end
fact = redis.call('HMGET', account, 'tier', 'quota', 'created', 'avail', 'committed', 'used', 'month', 'ut')
local day = day_of(now)
if fact[7] - month_of(day) ~= 0 and roll(account, day, month_of(day), fact[6]) then
  fact = redis.call('HMGET', account, 'tier', 'quota', 'created', 'avail', 'committed', 'used', 'month', 'ut')
end
return { fact[1], fact[2] or '', fact[3], fact[4], fact[5], fact[6], fact[7] - month_of(day) == 0 and 1 or 0, redis.call('ZCOUNT', order, '-inf', '(+inf'),
  fact[8] or '' }
