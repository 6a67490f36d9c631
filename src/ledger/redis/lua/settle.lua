-- Takes the exact cost once, whatever became of the hold, and closes it (AccountState::settle); the month, the usage of the
-- day, that of its key and the producer's number move with it.
-- KEYS account, order of expiry, usage of the key, receipts (where they are kept), usage of the key that it counts as (with ARGV 18), where its
-- end user counts (with ARGV 16)
-- ARGV now, id, scope, held, held - cost, cost, tokens, field of the producer, number, model, prompt, completion, birth of the producer,
--   the receipt, the most receipts that there may be (empty texts where none are kept, or left out); where its key limits its end users: id of
--   the end user, ttl (ms) of their counts (or an empty text); and where its key counts as another one (spend.lua): that one (the two before
--   are empty texts where there is no end user)
-- `scope` and `held` are what the sender believes of the hold: they only save work when they are right. What the key counts as has to be right,
-- for names among KEYS follow from it: where it is not, nothing is changed, and the answer is `as` and the right one. `apart`, and nothing is
-- changed, while a cluster has the account and the hash of the hold's end user at two masters. `month`, and nothing is changed, where what the
-- month has used leaves the range beside what is held: that says nothing of the cost.
local account, order, of_key = KEYS[1], KEYS[2], KEYS[3]
local receipts = ARGV[14] and ARGV[14] ~= '' and KEYS[4]
local key = string.sub(of_key, #account + 8)
local user = ARGV[16] and ARGV[16] ~= '' and ARGV[16]
local users = user and KEYS[#KEYS]
local root, of_root = key, nil
if ARGV[18] then root, of_root = ARGV[18], KEYS[user and #KEYS - 1 or #KEYS] end
local now, id, scope, held = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local cost, producer, model = ARGV[6], ARGV[8], ARGV[10]
local day = day_of(now)
local month = month_of(day)
local row = day .. ' ' .. model

local fact = redis.call('HMGET', account, 'avail', 'used', 'month', producer, 'h' .. id, 'w' .. scope, 'u' .. row, 'ul' .. key, 'uel')
if not fact[1] then return 'none' end
local forgotten = not fact[4] and stale(account, ARGV[13])
if forgotten then return 'stale ' .. forgotten end
local numbers, run = closed(fact[4], ARGV[9], day)
if not numbers then return 'already' end
local part, free_part
if fact[8] or user or of_root then
  local as = fact[8] and fact[8] ~= '1' and fact[8] or key
  if as ~= root then return 'as ' .. as end
  part = redis.call('HGET', account, 'uh' .. id)
  if part then
    local _, _, free, is_apart = holds()
    if is_apart(account, part, users) then return 'apart' end
    free_part = free
  end
end

-- Money first, each step undone when a later one leaves the range; from then on nothing can fail.
if fact[3] - month ~= 0 and not roll(account, day, month, fact[2]) then return 'month' end
local amount, admitted, estimated, hold_scope
if fact[5] then amount, admitted, estimated, hold_scope = hold_parts(fact[5]) end
local delta, surplus = ARGV[5], nil
if amount ~= held then
  delta, surplus = negated(cost), amount
end
local available = add(account, 'avail', delta)
local committed = available and add(account, 'committed', negated(delta))
if not (committed and add(account, 'used', cost)) then
  if committed then add(account, 'committed', delta) end
  if available then add(account, 'avail', negated(delta)) end
  return 'range'
end
if surplus then
  add(account, 'avail', surplus)
  add(account, 'committed', negated(surplus))
end

if fact[8] or user then
  spend(account, id, cost, key, fact[8], root, of_root, user, users, ARGV[17], part, free_part, day)
end
local changes = { 'HSET', account, producer, numbers }
if amount then
  local window = fact[6]
  if hold_scope ~= scope then window = redis.call('HGET', account, 'w' .. hold_scope) end
  changes[#changes + 1] = 'w' .. hold_scope
  changes[#changes + 1] = window_after(window, admitted, estimated, tonumber(ARGV[7]))
  redis.call('HDEL', account, 'h' .. id)
  redis.call('ZREM', order, id)
end
changes[#changes + 1] = 'u' .. row
changes[#changes + 1] = counted(fact[7], ARGV[11], ARGV[12])
if not fact[7] then open_row(account, day, model) end
if not fact[4] then meet_producer(account, producer) end
redis.call(unpack(changes))
add(account, 'c' .. row, cost)
-- What is wrong with what only tells of the debit must not undo half of it.
local known = redis.pcall('HGET', of_key, 'u' .. row)
if type(known) ~= 'table' then
  redis.pcall('HSET', of_key, 'u' .. row, counted(known, ARGV[11], ARGV[12]))
  redis.pcall('HINCRBY', of_key, 'c' .. row, cost)
end
if receipts then redis.pcall('XADD', receipts, 'MAXLEN', '~', ARGV[15], '*', 't', now, 'r', ARGV[14]) end
-- With a t behind it, it was told already, and a debit changes nothing of that.
if fact[9] and string.byte(fact[9], -1) ~= 116 then
  local _, watch = events()
  watch(account, fact[9], now)
end
local word = (not amount or less(amount, cost)) and 'overrun ' or 'settled '
return receipts and word .. run .. '@' .. now or word .. run
