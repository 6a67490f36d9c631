-- Counts what a key spends from now on, on top of what its usage says that it has spent. A second time nothing changes.
-- It looks through all days of the account, whatever their number.
-- KEYS account, usage of the key; ARGV key, now, and 1 for a key that was made just now, which has no usage
local account, of_key, key, today = KEYS[1], KEYS[2], ARGV[1], day_of(clock(ARGV[2]))
local fact = redis.call('HMGET', account, 'avail', 'first', 'last', 'ul' .. key)
if not fact[1] then return 'none' end
if fact[4] then return 'known' end
-- Days of before count in all alone: their periods would be forgotten (spend.lua).
local oldest = math.min(today, tonumber(fact[3] or today)) - 62
redis.call('HSET', account, 'ul' .. key, '1', 'ud' .. key, oldest)
local first, last = tonumber(fact[2] or 0), tonumber(fact[3] or -1)
for day = first, ARGV[3] == '1' and first - 1 or last do
  local periods = day < oldest and 't' or string.format('d%d w%d m%d t', day, day - (day + 3) % 7, month_of(day))
  for model in string.gmatch(redis.call('HGET', account, 'd' .. day) or '', '[^\n]+') do
    local cost = redis.call('HGET', of_key, 'c' .. day .. ' ' .. model)
    for period in string.gmatch(cost and periods or '', '%S+') do
      for _, counter in ipairs({ 'uc', 'us' }) do
        local field = counter .. key .. ' ' .. period
        if not add(account, field, cost) then redis.call('HSET', account, field, '9223372036854775807') end
      end
    end
  end
end
return 'tracked'
