-- The server's time in milliseconds. Only a test brings its own.
local function clock(given)
  if given and given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function day_of(now)
  return math.floor(now / 86400000)
end

-- The UTC month of a day as the number yyyymm (civil calendar, counted from 0000-03-01). Every call needs it: a remainder costs less than a
-- function's call.
local function month_of(day)
  local days = day + 719468
  local day_of_era = days % 146097
  local passed = day_of_era - (day_of_era - day_of_era % 1460) / 1460 + (day_of_era - day_of_era % 36524) / 36524
    - (day_of_era - day_of_era % 146096) / 146096
  local year = (passed - passed % 365) / 365
  local day_of_year = day_of_era - (365 * year + (year - year % 4) / 4 - (year - year % 100) / 100)
  local fifths = 5 * day_of_year + 2
  local month = (fifths - fifths % 153) / 153
  year = year + (days - day_of_era) / 146097 * 400
  if month < 10 then return year * 100 + month + 3 end
  return (year + 1) * 100 + month - 9
end
