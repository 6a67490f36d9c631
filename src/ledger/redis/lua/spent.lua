-- Counts what a call has cost as spent by its key, when that is counted, and by its end user, in the periods in which the call came. What
-- it held is free again: `part`, which `free_part` frees. `root` is the key that it counts under, and `of_root` the usage of that one, where it
-- is another. `today` is Redis' day.
local function spend(account, id, cost, key, is_counted, root, of_root, user, users, ttl, part, free_part, today)
  if part then free_part(account, id, part) end
  -- A call that cost nothing makes no end user known.
  if user and cost ~= '0' then
    local _, meet_user = spending()
    if redis.call('HEXISTS', users, 'c' .. user) == 0 then meet_user(users, user, ttl) end
    if add(users, 'c' .. user, cost) then add(users, 's' .. user, cost) end
  end
  if not is_counted then return end
  local a, b, c, d, e, f = string.byte(id, 1, 6)
  local day = math.floor((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) / 86400000)
  local periods = string.format('d%d w%d m%d t', day, day - (day + 3) % 7, month_of(day))
  local of_day
  for period in string.gmatch(periods, '%S+') do
    local counted = add(account, 'uc' .. root .. ' ' .. period, cost) and add(account, 'us' .. root .. ' ' .. period, cost)
    of_day = of_day or counted
  end
  if of_root then
    -- Every version's audit holds what a key has spent in all against its usage: so each has its own, and the other's usage says this.
    if add(account, 'uc' .. key .. ' t', cost) then add(account, 'us' .. key .. ' t', cost) end
    redis.pcall('HINCRBY', of_root, 'cshared', cost)
  end
  -- The day is the first of them. It counts nothing else: it may be a new one.
  if of_day == tonumber(cost) then
    local _, _, forget_periods = spending()
    forget_periods(account, root, day, today)
  end
end
