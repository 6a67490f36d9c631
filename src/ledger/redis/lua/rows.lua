-- Usage rows, oldest day first: day, model, counts, cost.
-- KEYS account; ARGV now, number of days before today (or `all`)
local account = KEYS[1]
local fact = redis.call('HMGET', account, 'avail', 'first', 'last')
if not fact[1] then return false end
local rows = {}
if not fact[2] then return rows end
local first = tonumber(fact[2])
if ARGV[2] ~= 'all' then first = math.max(first, day_of(clock(ARGV[1])) - tonumber(ARGV[2])) end
for day = first, tonumber(fact[3]) do
  for model in string.gmatch(redis.call('HGET', account, 'd' .. day) or '', '[^\n]+') do
    local row = redis.call('HMGET', account, 'u' .. day .. ' ' .. model, 'c' .. day .. ' ' .. model)
    rows[#rows + 1] = { day, model, row[1], row[2] or '0' }
  end
end
return rows
