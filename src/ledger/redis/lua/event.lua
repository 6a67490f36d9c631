-- Events for webhooks, in the hash of the account that they are about, or in one of their own. All names begin with ue, which audits of earlier
-- versions pass over:
-- uei      ids of those that are still to be told, oldest first, a blank behind each
-- ue<id>   due (ms), kind, at (ms), what is told of it (ledger/redis/events.rs);  uew<id>  who is still to be told (JSON), once that is known
-- uen, ued  how many there were, and how many of them were dropped
-- uek      ids that are raised once, and until when (ms) they are known: id:ms, a blank behind each
-- uel      low_balance, and behind it t where it was told
-- uex      1: a call was refused for lack of credit, since credit came in last; and behind it what was left then
-- ueq      the month and quota by which one was refused;  uer  both, and what was left then
-- Gateways of earlier builds write uex without what was left, and no uer; any uex, and a ueq of the same month and quota, keep them silent.

-- One function that makes the others, for most calls need none.
local function events()
  -- `at`: when it was, where that is not now.
  local function raise(place, kind, now, data, id, at)
    local number = redis.call('HINCRBY', place, 'uen', 1)
    local text = string.format('%d', now)
    id = id or 'evt_' .. string.sub(redis.sha1hex(place .. ' ' .. number .. ' ' .. text), 1, 32)
    local open = redis.call('HGET', place, 'uei') or ''
    local _, count = string.gsub(open, ' ', ' ')
    local function is_over(first)
      if count >= 1000 then return true end
      local at = string.match(redis.call('HGET', place, 'ue' .. first) or '', '^%d+ %S+ (%d+)')
      return not at or now - at > 259200000
    end
    local first = string.match(open, '^%S+')
    while first and is_over(first) do
      redis.call('HDEL', place, 'ue' .. first, 'uew' .. first)
      redis.call('HINCRBY', place, 'ued', 1)
      open, count = string.sub(open, #first + 2), count - 1
      first = string.match(open, '^%S+')
    end
    redis.call('HSET', place, 'ue' .. id, text .. ' ' .. kind .. ' ' .. string.format('%d', at or now) .. ' ' .. data, 'uei', open .. id .. ' ')
    -- Where nobody hears it, or it is not allowed, they are looked for.
    redis.pcall('PUBLISH', 'tg1:events', place)
  end

  -- Tells once of a balance below low_balance, until it was not below it.
  local function watch(account, low, now)
    local bound, told = string.match(low, '^(%d+)( ?t?)$')
    local fact = redis.call('HMGET', account, 'avail', 'committed', 'used')
    -- What is held only adds to what is available.
    if told == '' and not less(fact[1], bound) then return end
    local balance = sum(account, fact[2], negated(fact[3]), fact[1])
    if not balance then return end
    if not less(balance, bound) then
      redis.call('HSET', account, 'uel', bound)
    elseif told == '' then
      redis.call('HSET', account, 'uel', bound .. ' t')
      raise(account, 'account.low_balance', now, balance .. ' ' .. bound)
    end
  end

  -- Whether a refusal of this kind is told that leaves so much beside what open calls hold: the first is, and then one that leaves less than
  -- half of what the one told before left. That is noted.
  local function is_told(account, field, of, left)
    local known, before = redis.call('HGET', account, field), nil
    if known and string.sub(known, 1, #of + 1) == of .. ' ' then before = string.sub(known, #of + 2) end
    if less(left, '0') then left = '0' end
    if before then
      -- Most often nothing has changed, and there is nothing to add.
      if not less(left, before) then return false end
      local twice = sum(account, left, left)
      if not twice or not less(twice, before) then return false end
    end
    redis.call('HSET', account, field, of .. ' ' .. left)
    return true
  end

  return raise, watch, is_told
end
