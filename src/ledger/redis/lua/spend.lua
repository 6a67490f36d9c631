-- Hard limits of keys and their end users (pure/account/spending.rs). In the account, in names that audits of earlier versions pass over:
-- ul<key>           there since the key first had a limit: what it spends is counted. It is 1, or the key that this one came in place of: then
--                   both count under that one, and here only what it spends in all, for the audit
-- us<key> <period>  spent by calls that came in the period;  uc<key> <period>  that, and what such calls hold: each at most the largest int64
-- ud<key>           the day (since 1970) before which the key's periods are forgotten, those of weeks and months that ended before it too
-- uh<id>            of an open hold: amount, key, its day, week, month and all time, and where its end user counts: id, name of the hash
-- The hash of one period's end users of a key, which expires: s<id>, c<id> as above, n: how many there are
-- A period is d or w and the days since 1970, m and yyyymm, or t.

-- One function that makes the others, for most calls need none.
local function spending()
  -- Makes an end user known.
  local function meet_user(users, user, ttl)
    redis.call('HSET', users, 'c' .. user, '0')
    if redis.call('HINCRBY', users, 'n', 1) == 1 and ttl ~= '' then redis.call('PEXPIRE', users, ttl) end
  end

  -- Forgets what a key counted in periods that were over 62 days ago, as the embedded ledger does: only who asks in a period needs it. Those of
  -- 64 days at most, from where the last time ended; the first time, from the day on which the account was made. `day` is that of a call that
  -- was just counted, `today` Redis': the earlier one decides, for one of both clocks may be wrong.
  local function forget_periods(account, key, day, today)
    local fact = redis.call('HMGET', account, 'ud' .. key, 'created')
    local known, made = tonumber(fact[1]), tonumber(fact[2])
    -- A debit may come so late that its day was forgotten: it counts there all the same, and that is forgotten again.
    local first = math.min(known or made and day_of(made) - 1 or day, day)
    local till = math.max(first, math.min(first + 64, day - 62, today - 62))
    local fields, gone = {}, {}
    local function add_period(period)
      fields[#fields + 1], fields[#fields + 2] = 'uc' .. key .. ' ' .. period, 'us' .. key .. ' ' .. period
    end
    for old = first, till - 1 do
      add_period('d' .. old)
      if (old + 3) % 7 == 6 then add_period('w' .. old - 6) end
      if month_of(old + 1) ~= month_of(old) then add_period('m' .. month_of(old)) end
    end
    if #fields > 0 then
      local counts = redis.call('HMGET', account, unpack(fields))
      for at = 1, #fields, 2 do
        local all, spent = counts[at], counts[at + 1]
        -- What is still held there is given back there.
        if (all or spent) and (all or '0') == (spent or '0') then
          gone[#gone + 1], gone[#gone + 2] = fields[at], fields[at + 1]
        end
      end
      if #gone > 0 then redis.call('HDEL', account, unpack(gone)) end
    end
    if till ~= known then redis.call('HSET', account, 'ud' .. key, till) end
  end

  -- Takes an amount of the limits for a hold.
  local function hold_spending(account, id, amount, key, periods, user, users, ttl, today)
    local part = amount .. ' ' .. key .. ' ' .. periods
    if user then
      if redis.call('HEXISTS', users, 'c' .. user) == 0 then meet_user(users, user, ttl) end
      if not add(users, 'c' .. user, amount) then redis.call('HSET', users, 'c' .. user, '9223372036854775807') end
      part = part .. ' ' .. user .. ' ' .. users
    end
    local of_day
    for period in string.gmatch(periods, '%S+') do
      local counted = add(account, 'uc' .. key .. ' ' .. period, amount)
      if not counted then redis.call('HSET', account, 'uc' .. key .. ' ' .. period, '9223372036854775807') end
      of_day = of_day or counted
    end
    redis.call('HSET', account, 'ul' .. key, '1', 'uh' .. id, part)
    -- The day is the first of them. It counts nothing else: it may be a new one.
    if of_day == tonumber(amount) then forget_periods(account, key, tonumber(string.match(periods, '^d(%-?%d+)')), today) end
  end

  return hold_spending, meet_user, forget_periods
end
