-- A call is about to be sent under a key that it has taken: 'sent', or 'lost' when the key is not its any more.
-- KEYS records, order, answers, stored; ARGV now, name, id, life (ms)
local keys = { records = KEYS[1], order = KEYS[2], answers = KEYS[3], stored = KEYS[4] }
local name, now = ARGV[2], clock(ARGV[1])
local record = redis.call('HGET', keys.records, name)
if not record then return 'lost' end
local state, fingerprint, owner = parts(record)
if owner ~= ARGV[3] or (state ~= 't' and state ~= 's') then return 'lost' end
redis.call('HSET', keys.records, name, 's' .. fingerprint .. owner)
redis.call('ZADD', keys.order, string.format('%d', now + ARGV[4]), name)
live(keys)
return 'sent'
