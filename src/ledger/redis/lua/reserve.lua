-- Checks limits, credit and quota and records the hold, all or nothing (AccountState::reserve).
-- KEYS account, order of expiry, where its end user counts (with ARGV 19)
-- ARGV id, scope, rpm, tpm, concurrency, wanted, at_least, quota - wanted, quota - at_least, tokens, ttl (ms), requests to count (0 or 1, and
--   behind it a blank where a refused call is tried again, so that a refusal is no event, or two where it is tried again as long as something
--   of the credit or the quota is left, so that only a refusal is an event that leaves nothing even without what is held), now
-- and for a key with limits: key, its periods, that of the key's limit (or an empty text), limit - wanted, limit - at_least,
--   and for its end user: id, limit - wanted, limit - at_least, the most end users, ttl (ms) of their counts (or an empty text)
-- A refusal counts the request too, unless the limit of requests is what refuses it.
-- A caller waits for this one. So numbers stay the texts that they come as wherever they are only copied or compared with others by a
-- difference, and what is seldom needed is made only then.
local account, order = KEYS[1], KEYS[2]
local id, scope, charge = ARGV[1], ARGV[2], ARGV[10]
local wanted, at_least, below_wanted, below_least = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local now = clock(ARGV[13])
local now_text = string.format('%d', now)

local fact = redis.call('HMGET', account, 'avail', 'committed', 'used', 'month', 'next', 'w' .. scope, 'h' .. id, 'ut')
if not fact[1] then return 'none' end
local next = fact[5] and tonumber(fact[5])
if next and now >= next then
  local _, expire = holds()
  expire(account, order, now)
  fact = redis.call('HMGET', account, 'avail', 'committed', 'used', 'month', 'next', 'w' .. scope, 'h' .. id, 'ut')
  next = fact[5] and tonumber(fact[5])
end
local day = day_of(now)
local month = month_of(day)
if fact[4] - month ~= 0 then
  if not roll(account, day, month, fact[3]) then return 'range' end
  fact = redis.call('HMGET', account, 'avail', 'committed', 'used', 'month', 'next', 'w' .. scope, 'h' .. id, 'ut')
end
local avail, committed = fact[1], fact[2]

local started, requests, tokens, open = window_parts(fact[6])
if now - started < 0 or now - started >= 60000 then
  started, requests, tokens = now_text, 0, 0
end

-- What the account's terms begin with, where it has some: active, suspended or closed. A hold that is there is that of a call sent again.
if fact[8] and not fact[7] and string.byte(fact[8]) ~= 97 then
  return string.format('%s %s %s %d %d %d', string.match(fact[8], '^%a+'), now_text, started, requests, tokens, open)
end
local counted = requests + ARGV[12]
if fact[7] or counted - ARGV[3] > 0 or tokens + charge - ARGV[4] > 0 or open - ARGV[5] >= 0 then
  local kind, rest = 'granted', ''
  if fact[7] then
    rest = hold_parts(fact[7])
  elseif counted - ARGV[3] > 0 then
    kind = 'requests'
  else
    kind = tokens + charge - ARGV[4] > 0 and 'tokens' or 'concurrency'
    requests = counted
    redis.call('HSET', account, 'w' .. scope, started .. string.format(' %d %d %d', requests, tokens, open))
  end
  return string.format('%s %s %s %d %d %d %s', kind, now_text, started, requests, tokens, open, rest)
end

local amount, is_limited = '0', false
if wanted ~= '0' then
  local used = fact[3]
  if less(avail, at_least) then
    local window = started .. string.format(' %d %d %d', counted, tokens, open)
    redis.call('HSET', account, 'w' .. scope, window)
    if #ARGV[12] == 1 or #ARGV[12] == 3 and not less('0', avail) then
      -- What open calls hold is back in a moment: no event tells where there would be enough without it, nor of a first
      -- try as long as something would be left without it.
      local left = committed == used and avail or sum(account, committed, negated(used), avail)
      if left and less(left, at_least) and (#ARGV[12] == 1 or not less('0', left)) then
        local raise, _, is_told = events()
        if is_told(account, 'uex', '1', left) then
          raise(account, 'account.exhausted', now, avail .. ' ' .. committed .. ' ' .. used)
        end
      end
    end
    return string.format('credit %s %s %s %s %s', now_text, window, avail, committed, used)
  end
  amount = less(avail, wanted) and avail or wanted
  if less(below_wanted, committed) then
    if less(below_least, committed) then
      local window = started .. string.format(' %d %d %d', counted, tokens, open)
      redis.call('HSET', account, 'w' .. scope, window)
      -- As above: not where it would fit without what open calls hold.
      local quota = #ARGV[12] ~= 2 and less(below_least, used) and sum(account, below_wanted, wanted)
      if quota and (#ARGV[12] == 1 or not less(used, quota)) then
        local raise, _, is_told = events()
        local of, left = month .. ' ' .. quota, '0'
        if less(used, quota) then left = sum(account, quota, negated(used)) end
        if left and is_told(account, 'uer', of, left) then
          redis.call('HSET', account, 'ueq', of)
          raise(account, 'account.quota_reached', now, of .. ' ' .. used .. ' ' .. committed)
        end
      end
      return string.format('quota %s %s %s %s', now_text, window, used, committed)
    end
    local left = sum(account, below_wanted, wanted, negated(committed))
    if less(left, amount) then amount = left end
  end
  if ARGV[14] then
    local key, user, users = ARGV[14], ARGV[19], KEYS[3]
    local window = started .. string.format(' %d %d %d', counted, tokens, open)
    local function refused(kind, rest)
      redis.call('HSET', account, 'w' .. scope, window)
      return kind .. ' ' .. now_text .. ' ' .. window .. rest
    end
    -- What counts there, and when that is too much, what is said of it.
    local function standing(hash, prefix, name, below, least)
      local has = redis.call('HGET', hash, prefix .. 'c' .. name)
      local committed = has or '0'
      if less(below, committed) then
        if less(least, committed) then
          return has, ' ' .. (redis.call('HGET', hash, prefix .. 's' .. name) or '0') .. ' ' .. committed
        end
        local left = sum(account, below, wanted, negated(committed))
        if less(left, amount) then amount = left end
      end
      return has
    end
    if ARGV[16] ~= '' then
      local _, short = standing(account, 'u', key .. ' ' .. ARGV[16], ARGV[17], ARGV[18])
      if short then return refused('key', short) end
    end
    if user then
      local has, short = standing(users, '', user, ARGV[20], ARGV[21])
      if short then return refused('end_user', short) end
      if not has and (redis.call('HGET', users, 'n') or 0) - ARGV[22] >= 0 then return refused('end_users', '') end
    end
    is_limited = true
  end
end

if not add(account, 'committed', amount) then return 'range' end
if amount ~= '0' then redis.call('HINCRBY', account, 'avail', '-' .. amount) end
if is_limited then spending()(account, id, amount, ARGV[14], ARGV[15], ARGV[19], KEYS[3], ARGV[23], day) end
local expires = string.format('%d', now + ARGV[11])
local window = started .. string.format(' %d %d %d', counted, tokens + charge, open + 1)
redis.call('HSET', account, 'w' .. scope, window, 'h' .. id, amount .. ' ' .. now_text .. ' ' .. charge .. ' ' .. scope)
if not next or expires - next < 0 then redis.call('HSET', account, 'next', expires) end
redis.call('ZADD', order, expires, id)
return 'granted ' .. now_text .. ' ' .. window .. ' ' .. amount
