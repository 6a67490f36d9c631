-- Gives a hold back (AccountState::release): what it held, or an empty text when it was gone.
-- KEYS account, order of expiry; ARGV id
local give_back = holds()
local amount = give_back(KEYS[1], ARGV[1], 0)
redis.call('ZREM', KEYS[2], ARGV[1])
return amount or ''
