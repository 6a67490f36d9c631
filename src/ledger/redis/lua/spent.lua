-- Counts what a call has cost as spent by its key, when that is counted, and by its end user, in the periods in which the call came. What
-- it held is free again: `part`, which `free_part` frees. `root` is the key that it counts under, and `of_root` the usage of that one, where it
-- is another. `today` is Redis' day.
local function spend(account, id, cost, key, is_counted, root, of_root, user, users, ttl, part, free_part, today)
  -- A sum that would leave the range is the largest amount, as in the embedded ledger.
  local function add_most(name, field)
    local counted = add(name, field, cost)
    if not counted then redis.call('HSET', name, field, '9223372036854775807') end
    return counted
  end
  if part then free_part(account, id, part) end
  -- A call that cost nothing makes no end user known.
  if user and cost ~= '0' then
    local _, meet_user = spending()
    if redis.call('HEXISTS', users, 'c' .. user) == 0 then meet_user(users, user, ttl) end
    add_most(users, 'c' .. user)
    add_most(users, 's' .. user)
  end
  if not is_counted then return end
  local a, b, c, d, e, f = string.byte(id, 1, 6)
  local day = math.floor((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) / 86400000)
  local periods = string.format('d%d w%d m%d t', day, day - (day + 3) % 7, month_of(day))
  local of_day
  for period in string.gmatch(periods, '%S+') do
    add_most(account, 'uc' .. root .. ' ' .. period)
    local counted = add_most(account, 'us' .. root .. ' ' .. period)
    of_day = of_day or counted
  end
  if of_root then
    -- Every version's audit holds what a key has spent in all against its usage: so each has its own, and the other's usage says this.
    add_most(account, 'uc' .. key .. ' t')
    add_most(account, 'us' .. key .. ' t')
    local shared = redis.pcall('HINCRBY', of_root, 'cshared', cost)
    if type(shared) == 'table' and string.find(shared.err, 'overflow', 1, true) then
      redis.call('HSET', of_root, 'cshared', '9223372036854775807')
    end
  end
  -- The day is the first of them. It counts nothing else: it may be a new one.
  if of_day == tonumber(cost) then
    local _, _, forget_periods = spending()
    forget_periods(account, root, day, today)
  end
end
