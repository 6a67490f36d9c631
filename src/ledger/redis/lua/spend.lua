-- Hard limits of keys and their end users (pure/account/spending.rs). In the account, in names that audits of earlier versions pass over:
-- ul<key>           there since the key first had a limit: what it spends is counted. It is 1, or the key that this one came in place of: then
--                   both count under that one, and here only what it spends in all, for the audit
-- us<key> <period>  spent by calls that came in the period;  uc<key> <period>  that, and what such calls hold
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

  -- Takes an amount of the limits for a hold.
  local function hold_spending(account, id, amount, key, periods, user, users, ttl)
    local part = amount .. ' ' .. key .. ' ' .. periods
    if user then
      if redis.call('HEXISTS', users, 'c' .. user) == 0 then meet_user(users, user, ttl) end
      add(users, 'c' .. user, amount)
      part = part .. ' ' .. user .. ' ' .. users
    end
    for period in string.gmatch(periods, '%S+') do add(account, 'uc' .. key .. ' ' .. period, amount) end
    redis.call('HSET', account, 'ul' .. key, '1', 'uh' .. id, part)
  end

  return hold_spending, meet_user
end
