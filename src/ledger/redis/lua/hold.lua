-- Holds and rate windows, as pure/limits.rs and pure/account.rs have them. All texts, blanks between the parts:
-- h<id>     amount, admitted (ms), tokens charged to the window, scope
-- w<scope>  start of the window (ms), requests, tokens, open holds
-- The order of expiry has a hold's id at its time in ms, and behind them all, at +inf, a text that is no hold.

local function hold_parts(record)
  return string.match(record, '^(%d+) (%d+) (%d+) (.*)$')
end

local function window_parts(record)
  if not record then return '0', '0', '0', '0' end
  return string.match(record, '^(%d+) (%d+) (%d+) (%d+)$')
end

-- The window without one of its calls, and with the call's tokens corrected when it was admitted in this window.
-- `actual` is nil when the call's real tokens are unknown.
local function window_after(record, admitted, estimated, actual)
  local started, requests, tokens, open = window_parts(record)
  if actual and admitted - started >= 0 and admitted - started < 60000 then
    tokens = math.min(math.max(tokens - estimated, 0) + actual, 9007199254740992)
  end
  return string.format('%s %s %d %d', started, requests, tokens, math.max(open - 1, 0))
end

-- One function that makes the others, for scripts that seldom need them: what a script makes costs it at each call.
local function holds()
  -- Frees what a hold takes of the limits of its key and its end user (spend.lua). First where the end user counts: that is another key of
  -- Redis, which may be out of reach while a cluster moves the slot, and then nothing has changed.
  local function free_part(account, id, part)
    local held, key, periods, user, users = string.match(part, '^(%d+) (%S+) (%S+ %S+ %S+ %S+) ?(%S*) ?(%S*)$')
    -- What cannot be read must not stop a settlement after its money has moved; the audit finds what it leaves.
    if held and held ~= '0' then
      if user ~= '' and redis.call('HEXISTS', users, 'c' .. user) == 1 then
        redis.call('HINCRBY', users, 'c' .. user, '-' .. held)
      end
      for period in string.gmatch(periods, '%S+') do
        redis.call('HINCRBY', account, 'uc' .. key .. ' ' .. period, '-' .. held)
      end
    end
    redis.call('HDEL', account, 'uh' .. id)
  end

  -- Gives a hold back. What it held, or nothing when it is gone. Its place in the order of expiry is the caller's to clear.
  local function give_back(account, id, actual)
    local found = redis.call('HMGET', account, 'h' .. id, 'uh' .. id)
    local record = found[1]
    if not record then return nil end
    if found[2] then free_part(account, id, found[2]) end
    local amount, admitted, tokens, scope = hold_parts(record)
    if amount ~= '0' then
      redis.call('HINCRBY', account, 'avail', amount)
      redis.call('HINCRBY', account, 'committed', '-' .. amount)
    end
    local window = redis.call('HGET', account, 'w' .. scope)
    redis.call('HSET', account, 'w' .. scope, window_after(window, admitted, tokens, actual))
    redis.call('HDEL', account, 'h' .. id)
    return amount
  end

  -- Frees every hold whose time is over, and says how many.
  local function expire(account, order, now)
    local freed = 0
    repeat
      local over = redis.call('ZRANGEBYSCORE', order, '-inf', now, 'LIMIT', 0, 200)
      for _, id in ipairs(over) do give_back(account, id, nil) end
      if #over > 0 then redis.call('ZREM', order, unpack(over)) end
      freed = freed + #over
    until #over < 200
    local first = redis.call('ZRANGE', order, 0, 0, 'WITHSCORES')[2]
    if first and first ~= 'inf' then
      redis.call('HSET', account, 'next', first)
    else
      redis.call('HDEL', account, 'next')
    end
    return freed
  end

  return give_back, expire, free_part
end
