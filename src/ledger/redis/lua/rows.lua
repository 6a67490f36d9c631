-- Some usage rows of an account, or of one of its keys, oldest day first: day, model, counts, cost. And the day and the model's place in it
-- where the next ones begin, where there are more. A day is not parted, unless it alone has more models than are looked at.
-- KEYS account, usage of the key (for its rows); ARGV now, the most rows that are looked at, and each of these or an empty text: the number of
-- days before today, the first day, the last day, the place in the first day
local account, rows_of, most = KEYS[1], KEYS[2] or KEYS[1], tonumber(ARGV[2])
local before, asked, until_day, place = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local fact = redis.call('HMGET', account, 'avail', 'first', 'last')
if not fact[1] then return false end
local rows, looked = {}, 0
if not fact[2] then return { rows } end
local first, last = tonumber(fact[2]), tonumber(fact[3])
if before then first = math.max(first, day_of(clock(ARGV[1])) - before) end
if asked then first = math.max(first, asked) end
if until_day then last = math.min(last, until_day) end
for day = first, last do
  local models, at = {}, day == asked and place or 0
  for model in string.gmatch(redis.call('HGET', account, 'd' .. day) or '', '[^\n]+') do models[#models + 1] = model end
  if looked > 0 and looked + #models - at > most then return { rows, day, at } end
  local to, fields = math.min(#models, at + most), {}
  for n = at + 1, to do
    local name = day .. ' ' .. models[n]
    fields[#fields + 1], fields[#fields + 2] = 'u' .. name, 'c' .. name
  end
  local found = to > at and redis.call('HMGET', rows_of, unpack(fields))
  for n = at + 1, to do
    local counts, cost = found[2 * (n - at) - 1], found[2 * (n - at)]
    -- Of the account's models a key has used some.
    if counts or not KEYS[2] then rows[#rows + 1] = { day, models[n], counts, cost or '0' } end
  end
  if to < #models then return { rows, day, to } end
  -- To find that a day has none is work, too.
  looked = looked + to - at + 1
end
return { rows }
