-- Changes an account's terms, unless somebody else has meanwhile, and tells every node. They are in a name that audits of earlier versions
-- pass over: ut, the status and what else there is.
-- KEYS account; ARGV channel, message, the terms before (or an empty text), the terms, low_balance (or an empty text), and tier and quota as
-- agreed.lua has them, in the same step
local account = KEYS[1]
local before = redis.call('HMGET', account, 'tier', 'ut')
if not before[1] then return 'none' end
if (before[2] or '') ~= ARGV[3] then return 'changed' end
redis.call('HSET', account, 'ut', ARGV[4])
agree(account, ARGV[6], ARGV[7])
-- As events have it: another one is told anew.
if ARGV[5] == '' then
  redis.call('HDEL', account, 'uel')
elseif string.match(redis.call('HGET', account, 'uel') or '', '^%d+') ~= ARGV[5] then
  redis.call('HSET', account, 'uel', ARGV[5])
end
redis.call('PUBLISH', ARGV[1], ARGV[2])
return 'set'
