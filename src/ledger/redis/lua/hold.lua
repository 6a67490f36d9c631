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
  local is_moving
  -- Whether the hash in which a hold's end user counts (spend.lua) may be at the other master of a slot that a cluster moves. Only the hold
  -- has its name: those who free holds whose time is over cannot name it among KEYS. A key that was not named and is at the other master
  -- looks empty to a script, or is an error. So where it is not here, the server is asked whether the slot moves. `named` is the hash that
  -- was named, where one was: that one is here, or nowhere.
  local function is_apart(account, part, named)
    local held, user, users = string.match(part, '^(%d+) %S+ %S+ %S+ %S+ %S+ (%S+) (%S+)$')
    if not held or held == '0' or users == named or redis.pcall('HEXISTS', users, 'c' .. user) == 1 then return false end
    if is_moving == nil then
      -- An open slot is told as [slot->-to] or [slot-<-from]. Where there is no cluster, this is an error.
      local nodes = redis.pcall('CLUSTER', 'NODES')
      is_moving = type(nodes) == 'string'
        and string.find(nodes, '[' .. redis.call('CLUSTER', 'KEYSLOT', account) .. '-', 1, true) ~= nil
    end
    return is_moving
  end

  -- Counts anew what a key has spent, and what its open calls but one hold, in a period (spend.lua): the counter was the largest int64, so there
  -- may have been more.
  local function recount(account, id, key, period)
    local field = 'uc' .. key .. ' ' .. period
    local spent = redis.call('HGET', account, 'us' .. key .. ' ' .. period) or '0'
    redis.call('HSET', account, field, spent)
    if spent == '9223372036854775807' then return end
    local all = redis.call('HGETALL', account)
    for at = 1, #all, 2 do
      if string.sub(all[at], 1, 2) == 'uh' and all[at] ~= 'uh' .. id then
        local held, of, periods = string.match(all[at + 1], '^(%d+) (%S+) (%S+ %S+ %S+ %S+)')
        if of == key and string.find(' ' .. periods .. ' ', ' ' .. period .. ' ', 1, true)
          and type(redis.pcall('HINCRBY', account, field, held)) == 'table' then
          redis.call('HSET', account, field, '9223372036854775807')
          return
        end
      end
    end
  end

  -- Frees what a hold takes of the limits of its key and its end user (spend.lua).
  local function free_part(account, id, part)
    local held, key, periods, user, users = string.match(part, '^(%d+) (%S+) (%S+ %S+ %S+ %S+) ?(%S*) ?(%S*)$')
    -- What cannot be read must not stop a settlement after its money has moved; the audit finds what it leaves.
    if held and held ~= '0' then
      if user ~= '' and redis.pcall('HEXISTS', users, 'c' .. user) == 1 then
        local left = redis.call('HINCRBY', users, 'c' .. user, '-' .. held)
        -- Whoever has spent nothing and holds nothing is not known: there is a most of those that are.
        if left == 0 and redis.call('HEXISTS', users, 's' .. user) == 0 then
          redis.call('HDEL', users, 'c' .. user)
          redis.call('HINCRBY', users, 'n', -1)
        end
      end
      for period in string.gmatch(periods, '%S+') do
        local left = redis.call('HINCRBY', account, 'uc' .. key .. ' ' .. period, '-' .. held)
        -- As doubles: where it was a little less, to count anew changes nothing.
        if left + held >= 9223372036854700000 then recount(account, id, key, period) end
      end
    end
    redis.call('HDEL', account, 'uh' .. id)
  end

  -- Gives a hold back. What it held, or nothing when it is gone; `apart`, and nothing is changed, while its end user's hash is. Its place in
  -- the order of expiry is the caller's to clear.
  local function give_back(account, id, actual)
    local found = redis.call('HMGET', account, 'h' .. id, 'uh' .. id)
    local record = found[1]
    if not record then return nil end
    if found[2] then
      if is_apart(account, found[2]) then return 'apart' end
      free_part(account, id, found[2])
    end
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

  -- Frees every hold whose time is over, and says how many. One whose end user's hash is apart keeps its credit and is looked at again in a
  -- second: what it takes of its end user's limit could not be found after it.
  local function expire(account, order, now)
    local freed = 0
    repeat
      local over = redis.call('ZRANGEBYSCORE', order, '-inf', now, 'LIMIT', 0, 200)
      local gone = {}
      for _, id in ipairs(over) do
        if give_back(account, id, nil) == 'apart' then
          redis.call('ZADD', order, 'XX', string.format('%d', now + 1000), id)
        else
          gone[#gone + 1] = id
        end
      end
      if #gone > 0 then redis.call('ZREM', order, unpack(gone)) end
      freed = freed + #gone
    until #over < 200
    local first = redis.call('ZRANGE', order, 0, 0, 'WITHSCORES')[2]
    if first and first ~= 'inf' then
      redis.call('HSET', account, 'next', first)
    else
      redis.call('HDEL', account, 'next')
    end
    return freed
  end

  return give_back, expire, free_part, is_apart
end
