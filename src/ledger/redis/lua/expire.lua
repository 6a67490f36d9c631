-- Frees the holds whose time is over (AccountState::expire), and says how many.
-- KEYS account, order of expiry; ARGV now
local _, expire = holds()
local next, now = redis.call('HGET', KEYS[1], 'next'), clock(ARGV[1])
if not next or now < tonumber(next) then return 0 end
return expire(KEYS[1], KEYS[2], now)
