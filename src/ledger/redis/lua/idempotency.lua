-- Idempotency keys of an API key (pure/idempotency.rs), in the slot of its account:
-- records   hash: of a key's name a letter (t taken, s sent, d stored, g not stored), fingerprint (32 bytes), id of its request (16), and for
--           a call that nothing is held for since when (ms); `bytes`: of all answers
-- order     names by the time at which they expire (ms)
-- answers   hash: of a name a letter (e events, j JSON) and the answer
-- stored    the names of `answers`, by the time at which they expire
-- All of them expire by themselves once no key is new. One may go before the others, by an eviction or an operator's hand.
local function parts(record)
  return string.sub(record, 1, 1), string.sub(record, 2, 33), string.sub(record, 34, 49), string.sub(record, 50)
end

-- Forgets a name's answer. It is no stored one afterwards, whether its answer was there or not.
local function drop_answer(keys, name)
  redis.call('ZREM', keys.stored, name)
  local length = redis.call('HSTRLEN', keys.answers, name)
  if length == 0 then return end
  redis.call('HDEL', keys.answers, name)
  redis.call('HINCRBY', keys.records, 'bytes', 1 - length)
end

local function forget(keys, name)
  drop_answer(keys, name)
  redis.call('HDEL', keys.records, name)
  redis.call('ZREM', keys.order, name)
end

-- Forgets some of the names whose time is over, and this one if its is.
local function expire_names(keys, name, now)
  local expires = redis.call('ZSCORE', keys.order, name)
  if expires and now - expires >= 0 then forget(keys, name) end
  for _, over in ipairs(redis.call('ZRANGEBYSCORE', keys.order, '-inf', now, 'LIMIT', 0, 1000)) do forget(keys, over) end
end

-- They live as long as the youngest name can. While the clock is behind, a life from now ends too early; one that is longer by more than a month
-- is of a clock that was ahead.
local function live(keys)
  for _, key in pairs(keys) do
    local left = redis.call('PTTL', key)
    if left < 86460000 or left > 2764860000 then redis.call('PEXPIRE', key, 86460000) end
  end
end
