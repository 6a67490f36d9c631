-- Takes an idempotency key for a call, or says what is known of it. Without a life it takes none, and only says that.
-- KEYS account, records, order, answers, stored
-- ARGV now, name, fingerprint, id, most names, life of a key whose call has sent nothing (ms; none: empty)
-- Answers 'taken', 'full', without a life 'unknown', or a list: the record, for how long nothing has been held for its call (ms; -1: it is), and
-- the same call's answer.
local keys = { records = KEYS[2], order = KEYS[3], answers = KEYS[4], stored = KEYS[5] }
local name, fingerprint, id = ARGV[2], ARGV[3], ARGV[4]
local now = clock(ARGV[1])
expire_names(keys, name, now)
local record = redis.call('HGET', keys.records, name)
if not record then
  if ARGV[6] == '' then return 'unknown' end
  if redis.call('ZCARD', keys.order) - ARGV[5] >= 0 then return 'full' end
  redis.call('HSET', keys.records, name, 't' .. fingerprint .. id)
  redis.call('ZADD', keys.order, string.format('%d', now + ARGV[6]), name)
  live(keys)
  return 'taken'
end
local state, known, owner, missing = parts(record)
if state == 't' and owner == id then return 'taken' end
local gone = -1
if state == 's' and redis.call('HEXISTS', KEYS[1], 'h' .. owner) == 0 then
  if missing == '' then
    missing = string.format('%d', now)
    redis.call('HSET', keys.records, name, 's' .. known .. owner .. missing)
  end
  gone = math.max(now - missing, 0)
elseif missing ~= '' then
  redis.call('HSET', keys.records, name, state .. known .. owner)
end
local answer = state == 'd' and known == fingerprint and redis.call('HGET', keys.answers, name)
return { string.sub(record, 1, 49), gone, answer or '' }
