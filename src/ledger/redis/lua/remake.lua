-- Makes the hold of a running call anew that is gone, when credit and quota are there. Its window counts it as open again, and its tokens
-- no second time. `apart`, and nothing is changed, while a cluster has the account and what is left of the hold at two masters.
-- KEYS account, order of expiry, where its end user counts (with ARGV 11)
-- ARGV now, id, amount, quota - amount, scope, ttl (ms); and for a key with limits: key, its periods, that of the key's limit (or an
--   empty text), limit - amount, end user, its limit - amount, ttl (ms) of its counts (or an empty text)
local account, order = KEYS[1], KEYS[2]
local id, amount, below, scope = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now = clock(ARGV[1])
local next = redis.call('HGET', account, 'next')
if next and now >= tonumber(next) then
  local _, expire = holds()
  expire(account, order, now)
end
local fact = redis.call('HMGET', account, 'avail', 'committed', 'used', 'month', 'next', 'w' .. scope, 'h' .. id)
if not fact[1] then return 'none' end
if fact[7] then
  redis.call('ZADD', order, 'XX', string.format('%d', now + ARGV[6]), id)
  return 'made'
end
local day = day_of(now)
local month = month_of(day)
if fact[4] - month ~= 0 then
  if not roll(account, day, month, fact[3]) then return 'range' end
  fact = redis.call('HMGET', account, 'avail', 'committed', 'used', 'month', 'next', 'w' .. scope, 'h' .. id)
end
if amount ~= '0' and (less(fact[1], amount) or less(below, fact[2])) then return 'refused' end
if ARGV[7] and amount ~= '0' then
  local function is_beyond(below, committed) return less(below, committed or '0') end
  if ARGV[9] ~= '' and is_beyond(ARGV[10], redis.call('HGET', account, 'uc' .. ARGV[7] .. ' ' .. ARGV[9])) then return 'refused' end
  if ARGV[11] and is_beyond(ARGV[12], redis.call('HGET', KEYS[3], 'c' .. ARGV[11])) then return 'refused' end
end
local part, free_part
if ARGV[7] and amount ~= '0' then
  part = redis.call('HGET', account, 'uh' .. id)
  if part then
    local _, _, free, is_apart = holds()
    if is_apart(account, part, KEYS[3]) then return 'apart' end
    free_part = free
  end
end
if not add(account, 'committed', amount) then return 'range' end
if amount ~= '0' then redis.call('HINCRBY', account, 'avail', '-' .. amount) end
if ARGV[7] and amount ~= '0' then
  if part then free_part(account, id, part) end
  spending()(account, id, amount, ARGV[7], ARGV[8], ARGV[11], KEYS[3], ARGV[13], day)
end
local expires = string.format('%d', now + ARGV[6])
local started, requests, tokens, open = window_parts(fact[6])
redis.call('HSET', account, 'w' .. scope, string.format('%s %s %s %d', started, requests, tokens, open + 1),
  'h' .. id, amount .. ' 0 0 ' .. scope)
if not fact[5] or expires - fact[5] < 0 then redis.call('HSET', account, 'next', expires) end
redis.call('ZADD', order, expires, id)
return 'made'
