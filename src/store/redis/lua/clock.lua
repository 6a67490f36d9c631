-- The server's time in milliseconds. Only a test brings its own.
local function clock(given)
  if given and given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function day_of(now)
  return math.floor(now / 86400000)
end

-- The UTC month of a day as the number yyyymm (civil calendar, counted from 0000-03-01).
local function month_of(day)
  local days = day + 719468
  local era = math.floor(days / 146097)
  local day_of_era = days - era * 146097
  local year = math.floor((day_of_era - math.floor(day_of_era / 1460) + math.floor(day_of_era / 36524)
    - math.floor(day_of_era / 146096)) / 365)
  local day_of_year = day_of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * day_of_year + 2) / 153)
  if month < 10 then return (year + era * 400) * 100 + month + 3 end
  return (year + era * 400 + 1) * 100 + month - 9
end
