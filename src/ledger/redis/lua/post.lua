-- Posts a credit entry, once a reference. One below zero takes at most what is available (AccountState::post).
-- KEYS account, order of expiry, order of credit entries; of a payment also ended claims
-- ARGV now, reference, amount, kind, note, whether it may take more, whether a closed account takes it, whether it is content with the balance
-- where that is less, whatever is held of it (0 or 1 each), a text that no other step has (made.lua); of a payment also the turn of its claim
local account, order, credits = KEYS[1], KEYS[2], KEYS[3]
local reference, amount, kind = ARGV[2], ARGV[3], ARGV[4]
local now, field = clock(ARGV[1]), credit_field(ARGV[2])
local fact = redis.call('HMGET', account, 'avail', 'committed', 'used', field, 'ut', 'next')
if not fact[1] then return { 'none' } end
local is_again, steps = made(account, ARGV[9], now)
local takes = string.byte(amount) == 45
if takes and fact[6] and now >= tonumber(fact[6]) then
  local _, expire = holds()
  expire(account, order, now)
  fact = redis.call('HMGET', account, 'avail', 'committed', 'used', field, 'ut')
end
local balance = sum(account, fact[2], negated(fact[3]), fact[1])
if fact[4] then
  if is_again then return { 'added', balance, fact[4] } end
  local before, as = string.match(fact[4], '^(%-?%d+) %-?%d+ ?(%S*)')
  if as == '' then as = 'top_up' end
  local is_part = ARGV[8] == '1' and takes and not less('0', before) and not less(before, amount)
  return { (before == amount or is_part) and as == kind and 'already' or 'conflict', balance, fact[4] }
end
if KEYS[4] then
  local ended = redis.call('HGET', KEYS[4], reference)
  if ended and tonumber(ended) >= tonumber(ARGV[10]) then return { 'ended' } end
end
if ARGV[7] ~= '1' and string.match(fact[5] or '', '^%a+') == 'closed' then return { 'closed' } end
if takes and ARGV[6] ~= '1' and less(fact[1], negated(amount)) then
  if ARGV[8] == '0' then return { 'short', fact[1], sum(account, fact[2], negated(fact[3])) } end
  if less(balance, negated(amount)) then amount = less('0', balance) and negated(balance) or '0' end
end
balance = sum(account, balance, amount)
if not balance then return { 'range' } end
redis.call('ZADD', credits, now, reference)
if not add(account, 'avail', amount) then
  redis.call('ZREM', credits, reference)
  return { 'range' }
end
local text = string.format('%s %d %s %s', amount, now, kind, balance)
if ARGV[5] ~= '' then text = text .. ' ' .. ARGV[5] end
redis.call('HSET', account, field, text, 'um', steps)
local raise, watch = events()
raise(account, 'credits.added', now, kind .. ' ' .. amount .. ' ' .. balance .. ' ' .. reference)
if not takes then redis.call('HDEL', account, 'uex') end
local low = redis.call('HGET', account, 'uel')
if low then watch(account, low, now) end
return { 'added', balance, text }
