-- How many events are still to be told, when the oldest of them happened (ms, or an empty text), and how many were dropped.
-- KEYS where they are kept
local fact = redis.call('HMGET', KEYS[1], 'uei', 'ued')
local _, count = string.gsub(fact[1] or '', ' ', ' ')
local first = string.match(fact[1] or '', '^%S+')
local at = first and string.match(redis.call('HGET', KEYS[1], 'ue' .. first) or '', '^%d+ %S+ (%d+)')
return { count, at or '', fact[2] or '0' }
