-- Raises what a hold has (AccountState::extend): what it has then, or why not.
-- KEYS account, order of expiry, where its end user counts (with ARGV 9)
-- ARGV id, wanted, at_least, quota, now; and for a key with limits: key, the period of the key's limit (or an empty text), limit, end user,
--   its limit
local account, order = KEYS[1], KEYS[2]
local id, wanted, at_least, quota = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local now = clock(ARGV[5])
local _, expire = holds()
local next = redis.call('HGET', account, 'next')
if next and now >= tonumber(next) then expire(account, order, now) end

local fact = redis.call('HMGET', account, 'avail', 'committed', 'used', 'month', 'h' .. id)
if not fact[1] or not fact[5] then return 'gone' end
local day = day_of(now)
local month = month_of(day)
if fact[4] - month ~= 0 then
  if not roll(account, day, month, fact[3]) then return 'range' end
  fact = redis.call('HMGET', account, 'avail', 'committed', 'used', 'month', 'h' .. id)
end
local has, admitted, tokens, scope = hold_parts(fact[5])
if not less(has, wanted) then return 'extended ' .. has end

-- What there would be if the hold were not.
local available = sum(account, fact[1], has)
local quota_left = sum(account, quota, negated(fact[2]), has)
if not available or not quota_left then return 'range' end
local amount = wanted
if less(available, amount) then amount = available end
if less(quota_left, amount) then amount = quota_left end
local part = ARGV[6] and redis.call('HGET', account, 'uh' .. id)
if part then
  local function keep_within(limit, committed)
    local left = sum(account, limit, negated(committed or '0'), has)
    if left and less(left, amount) then amount = left end
  end
  if ARGV[7] ~= '' then keep_within(ARGV[8], redis.call('HGET', account, 'uc' .. ARGV[6] .. ' ' .. ARGV[7])) end
  if ARGV[9] then keep_within(ARGV[10], redis.call('HGET', KEYS[3], 'c' .. ARGV[9])) end
end
if less(amount, at_least) or not less(has, amount) then
  if less(has, at_least) then return 'refused' end
  return 'extended ' .. has
end
local more = sum(account, amount, negated(has))
if not more or not add(account, 'committed', more) then return 'range' end
redis.call('HINCRBY', account, 'avail', negated(more))
if part then
  local key, periods, user = string.match(part, '^%d+ (%S+) (%S+ %S+ %S+ %S+) ?(%S*)')
  local function add_most(name, field)
    if not add(name, field, more) then redis.call('HSET', name, field, '9223372036854775807') end
  end
  for period in string.gmatch(periods, '%S+') do add_most(account, 'uc' .. key .. ' ' .. period) end
  if user ~= '' and ARGV[9] then add_most(KEYS[3], 'c' .. user) end
  redis.call('HSET', account, 'uh' .. id, amount .. string.match(part, '^%d+(.*)$'))
end
redis.call('HSET', account, 'h' .. id, amount .. ' ' .. admitted .. ' ' .. tokens .. ' ' .. scope)
return 'extended ' .. amount
