-- Makes `month`, which `day` is in, the month that is counted as used, from the rows of its days: after a month's end, or when the clock was
-- set. What is used then; nothing, and nothing changed, when that leaves the range.
local function roll(account, day, month, used)
  redis.call('HSET', account, 'sum', '0')
  local good = true
  for other = day - 31, day + 31 do
    local models = month_of(other) == month and redis.call('HGET', account, 'd' .. other)
    for model in string.gmatch(models or '', '[^\n]+') do
      good = good and add(account, 'sum', redis.call('HGET', account, 'c' .. other .. ' ' .. model) or '0')
    end
  end
  local counted = redis.call('HGET', account, 'sum')
  redis.call('HDEL', account, 'sum')
  if not (good and add(account, 'committed', negated(used))) then return nil end
  if not add(account, 'committed', counted) then
    add(account, 'committed', used)
    return nil
  end
  redis.call('HSET', account, 'month', month, 'used', counted)
  return counted
end
