-- Notes who holds the claim on a payment, if nobody has taken it meanwhile. Answers what stands there then (payments.rs).
-- KEYS payment; ARGV what was seen there (or an empty text), what is to stand there
local held = redis.call('GET', KEYS[1]) or ''
if held ~= ARGV[1] then return held end
redis.call('SET', KEYS[1], ARGV[2])
return ARGV[2]
