-- Some usage rows of an account (day, model, counts, cost), from a model of a day on until a day: at most so many. And the day and the model's
-- place in it where the next ones begin, where there are more.
local function debits(account, first, place, last, most)
  local rows, looked = {}, 0
  for day = first, last do
    local at, models = 0, redis.call('HGET', account, 'd' .. day)
    for model in string.gmatch(models or '', '[^\n]+') do
      at = at + 1
      if day > first or at > place then
        if #rows >= most then return rows, day, at - 1 end
        local name = day .. ' ' .. model
        local row = redis.call('HMGET', account, 'u' .. name, 'c' .. name)
        rows[#rows + 1] = { day, model, row[1], row[2] or '0' }
      end
    end
    looked = looked + 1
    if looked >= 2000 and day < last then return rows, day + 1, 0 end
  end
  return rows
end
