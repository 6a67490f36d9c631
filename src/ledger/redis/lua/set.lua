-- Changes an account's facts and tells every node.
-- KEYS account; ARGV channel, message, tier (or an empty text), quota (empty: stays; `none`: the tier's)
local account = KEYS[1]
if redis.call('EXISTS', account) == 0 then return 'none' end
if ARGV[3] ~= '' then redis.call('HSET', account, 'tier', ARGV[3]) end
if ARGV[4] == 'none' then
  redis.call('HDEL', account, 'quota')
elseif ARGV[4] ~= '' then
  redis.call('HSET', account, 'quota', ARGV[4])
end
redis.call('PUBLISH', ARGV[1], ARGV[2])
return 'set'
