-- Usage rows of an account, or of one of its keys, oldest day first: day, model, counts, cost.
-- KEYS account, usage of the key (for its rows); ARGV now, number of days before today (or `all`), of a span the first and the last day
local account, rows_of = KEYS[1], KEYS[2] or KEYS[1]
local fact = redis.call('HMGET', account, 'avail', 'first', 'last')
if not fact[1] then return false end
local rows = {}
if not fact[2] then return rows end
local first = tonumber(fact[2])
if ARGV[2] ~= 'all' then first = math.max(first, day_of(clock(ARGV[1])) - tonumber(ARGV[2])) end
local last = tonumber(fact[3])
if ARGV[3] then first, last = math.max(first, tonumber(ARGV[3])), math.min(last, tonumber(ARGV[4])) end
for day = first, last do
  for model in string.gmatch(redis.call('HGET', account, 'd' .. day) or '', '[^\n]+') do
    local row = redis.call('HMGET', rows_of, 'u' .. day .. ' ' .. model, 'c' .. day .. ' ' .. model)
    -- Of the account's models a key has used some.
    if row[1] or not KEYS[2] then rows[#rows + 1] = { day, model, row[1], row[2] or '0' } end
  end
end
return rows
