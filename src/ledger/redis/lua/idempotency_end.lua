-- The call of a key is over. One that was not billed frees it; one that was leaves it, with its answer or without.
-- KEYS records, order, answers, stored; ARGV name, id, 'free' or 'billed', answer (none: empty), most bytes of answers
-- The answer of another call, or of one that was told before, stays as it is.
local keys = { records = KEYS[1], order = KEYS[2], answers = KEYS[3], stored = KEYS[4] }
local name, answer, most = ARGV[1], ARGV[4], tonumber(ARGV[5])
local record = redis.call('HGET', keys.records, name)
if not record then return 'gone' end
local state, fingerprint, owner = parts(record)
if owner ~= ARGV[2] or (state ~= 't' and state ~= 's') then return 'gone' end
if ARGV[3] == 'free' then
  forget(keys, name)
  return 'freed'
end
local length = #answer - 1
if length < 1 or length > most then
  redis.call('HSET', keys.records, name, 'g' .. fingerprint .. owner)
  return 'told'
end
local bytes = redis.call('HINCRBY', keys.records, 'bytes', length)
while bytes > most do
  local oldest = redis.call('ZRANGE', keys.stored, 0, 0)[1]
  if not oldest then
    -- What was counted beside this answer is gone, or nobody knows any more when it expires.
    redis.call('DEL', keys.answers)
    redis.call('HSET', keys.records, 'bytes', length)
    break
  end
  drop_answer(keys, oldest)
  local old = redis.call('HGET', keys.records, oldest)
  if old then redis.call('HSET', keys.records, oldest, 'g' .. string.sub(old, 2, 49)) end
  bytes = tonumber(redis.call('HGET', keys.records, 'bytes'))
end
redis.call('HSET', keys.answers, name, answer)
redis.call('ZADD', keys.stored, redis.call('ZSCORE', keys.order, name) or 0, name)
redis.call('HSET', keys.records, name, 'd' .. fingerprint .. owner)
live(keys)
return 'stored'
