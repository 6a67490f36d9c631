-- Checks limits, credit and quota and records the hold, all or nothing (AccountState::reserve).
-- KEYS account, order of expiry
-- ARGV now, id, scope, rpm, tpm, concurrency, wanted, at_least, quota, quota - wanted, quota - at_least, tokens, ttl (ms)
local account, order = KEYS[1], KEYS[2]
local now, id, scope = clock(ARGV[1]), ARGV[2], ARGV[3]
local wanted, at_least, quota, below_wanted, below_least = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local charge = tonumber(ARGV[12])

local function facts()
  return redis.call('HMGET', account, 'avail', 'committed', 'used', 'month', 'next', 'w' .. scope, 'h' .. id)
end
local fact = facts()
if not fact[1] then return 'none' end
if fact[5] and now >= tonumber(fact[5]) then
  expire(account, order, now)
  fact = facts()
end
local avail, committed, used = fact[1], fact[2], fact[3]

local started, requests, tokens, open = read_window(fact[6])
if now < started or now - started >= 60000 then
  started, requests, tokens = now, 0, 0
end
local function answer(kind, rest)
  return string.format('%s %d %d %d %d %s', kind, now, started, requests, tokens, rest)
end

if fact[7] then return answer('granted', (read_hold(fact[7]))) end
if requests >= tonumber(ARGV[4]) then return answer('requests', '') end
if tokens + charge > tonumber(ARGV[5]) then return answer('tokens', '') end
if open >= tonumber(ARGV[6]) then return answer('concurrency', '') end

local amount = '0'
if wanted ~= '0' then
  if less(avail, at_least) then return answer('credit', avail .. ' ' .. committed .. ' ' .. used) end
  local in_month, spent = committed, used
  if tonumber(fact[4]) < month_of(day_of(now)) then
    in_month, spent = sum(account, committed, negated(used)), '0'
  end
  if less(below_least, in_month) then return answer('quota', spent .. ' ' .. in_month) end
  amount = less(avail, wanted) and avail or wanted
  if less(below_wanted, in_month) then
    local left = sum(account, quota, negated(in_month))
    if less(left, amount) then amount = left end
  end
end

if not add(account, 'committed', amount) then return 'range' end
if amount ~= '0' then redis.call('HINCRBY', account, 'avail', '-' .. amount) end
local expires = now + tonumber(ARGV[13])
requests, tokens = requests + 1, tokens + charge
local changes = { 'HSET', account, 'w' .. scope, string.format('%d %d %d %d', started, requests, tokens, open + 1),
  'h' .. id, hold_record(amount, now, charge, scope) }
if not fact[5] or expires < tonumber(fact[5]) then
  changes[7], changes[8] = 'next', string.format('%d', expires)
end
redis.call(unpack(changes))
redis.call('ZADD', order, expires, id)
return answer('granted', amount)
