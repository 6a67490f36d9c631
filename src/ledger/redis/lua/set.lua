-- Changes an account's facts and tells every node.
-- KEYS account; ARGV channel, message, tier and quota as agreed.lua has them
local account = KEYS[1]
if redis.call('EXISTS', account) == 0 then return 'none' end
agree(account, ARGV[3], ARGV[4])
redis.call('PUBLISH', ARGV[1], ARGV[2])
return 'set'
