-- Adds credit, once a reference.
-- KEYS account; ARGV now, reference, amount
local account, amount = KEYS[1], ARGV[3]
-- `tier` is the account's tier, and no reference is empty.
local field = ARGV[2] == 'ier' and 't' or 't' .. ARGV[2]
local fact = redis.call('HMGET', account, 'avail', 'committed', 'used', field)
if not fact[1] then return 'none' end
local balance = sum(account, fact[2], negated(fact[3]), fact[1])
if fact[4] then
  local same = string.match(fact[4], '^%d+') == amount
  return (same and 'already ' or 'conflict ') .. balance
end
balance = sum(account, balance, amount)
if not balance then return 'range' end
redis.call('HINCRBY', account, 'avail', amount)
redis.call('HSET', account, field, string.format('%s %d', amount, clock(ARGV[1])))
return 'added ' .. balance
