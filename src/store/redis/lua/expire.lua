-- Frees the holds whose time is over (AccountState::expire), and says how many.
-- KEYS account, order of expiry; ARGV now
return expire_due(KEYS[1], KEYS[2], clock(ARGV[1]), redis.call('HGET', KEYS[1], 'next'))
