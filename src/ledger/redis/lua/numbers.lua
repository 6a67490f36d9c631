-- Which numbers of a producer are resolved (pure/numbers.rs):
-- n<producer>  the highest number met, the day of the last that was closed, and those up to the highest that are open: one, or first-last
-- p<producer>  the same, of versions that closed numbers in order
-- numbered, producers: the producers of each kind, a blank between;  forgotten: when the youngest was born that is forgotten

-- The record with a number closed, and the run of numbers that became known with it and are open; nothing when it was closed before.
-- Its day never goes back: whoever closed a number while the clock was behind would be taken for silent when it is set right.
local function closed(record, text, day)
  local find, sub = string.find, string.sub
  local number, high, open_from = tonumber(text), '0', nil
  if record then
    local blank = find(record, ' ', 1, true)
    high, open_from = sub(record, 1, blank - 1), find(record, ' ', blank + 1, true)
    local before = sub(record, blank + 1, (open_from or 0) - 1)
    if day - before < 0 then day = before end
  end
  local before = number - high
  if before == 1 then return text .. ' ' .. day .. (open_from and sub(record, open_from) or ''), '' end
  if before > 1 then
    local run = string.format('%d-%d', high + 1, number - 1)
    local each = { run }
    -- One by one as long as they are those of calls that run: a text is found at once, and a run has to be looked for.
    if before <= 256 then
      for one = 1, before - 1 do each[one] = string.format('%d', high + one) end
    end
    local open = open_from and sub(record, open_from) or ' '
    return text .. ' ' .. day .. open .. table.concat(each, ' ') .. ' ', run
  end
  if not open_from then return nil end
  local at, last = find(record, ' ' .. text .. ' ', open_from, true)
  local rest = ''
  if not at then
    for from, first, final, to in string.gmatch(record, '()(%d+)%-(%d+) ()') do
      first, final = tonumber(first), tonumber(final)
      if number >= first and number <= final then
        at, last = from - 1, to - 1
        if number - first == 1 then rest = string.format('%d ', first) end
        if number - first > 1 then rest = string.format('%d-%d ', first, number - 1) end
        if final - number == 1 then rest = rest .. string.format('%d ', final) end
        if final - number > 1 then rest = rest .. string.format('%d-%d ', number + 1, final) end
        break
      end
    end
    if not at then return nil end
  end
  local left = sub(record, open_from, at) .. rest .. sub(record, last + 1)
  return high .. ' ' .. day .. (left == ' ' and '' or left), ''
end

-- The youngest birth that was forgotten, when a producer that is not known and was born then may be one of those.
local function stale(account, born)
  local forgotten = redis.call('HGET', account, 'forgotten')
  return forgotten and born - forgotten <= 0 and forgotten
end

-- Makes a producer known to those who forget it.
local function meet_producer(account, field)
  local list = string.byte(field) == 110 and 'numbered' or 'producers'
  local known, producer = redis.call('HGET', account, list), string.sub(field, 2)
  redis.call('HSET', account, list, known and known .. ' ' .. producer or producer)
end
