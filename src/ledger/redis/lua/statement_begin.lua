-- How an account stands before its statement is read: the time, what is available, committed and used, how many credit entries there are,
-- how many of them before two moments, and the reference of the last.
-- KEYS account, order of credit entries; ARGV now, the first moment (ms), the one after the last
local fact = redis.call('HMGET', KEYS[1], 'avail', 'committed', 'used')
if not fact[1] then return false end
local count = redis.call('ZCARD', KEYS[2])
local first = redis.call('ZCOUNT', KEYS[2], '-inf', '(' .. ARGV[2])
local after = redis.call('ZCOUNT', KEYS[2], '-inf', '(' .. ARGV[3])
local last = redis.call('ZREVRANGE', KEYS[2], 0, 0)[1] or ''
return { string.format('%d', clock(ARGV[1])), fact[1], fact[2], fact[3], count, first, after, last }
