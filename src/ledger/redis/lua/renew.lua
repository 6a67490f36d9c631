-- Moves the expiry of live holds (AccountState::renew). Answers with the number of those that were gone, then their ids.
-- KEYS account, order of expiry; ARGV now, ttl (ms), id …
local expires = clock(ARGV[1]) + tonumber(ARGV[2])
local gone = {}
for index = 3, #ARGV do
  if redis.call('ZSCORE', KEYS[2], ARGV[index]) then
    redis.call('ZADD', KEYS[2], 'XX', expires, ARGV[index])
  else
    gone[#gone + 1] = ARGV[index]
  end
end
return gone
