-- Which numbers of a producer are resolved (pure/numbers.rs):
-- n<producer>  the highest number met, the day of the last that was closed, and those up to the highest that are open: one, or first-last
-- p<producer>  the same, of versions that closed numbers in order
-- numbered, producers: the producers of each kind, a blank between;  forgotten: when the youngest was born that is forgotten

-- The record with a number closed, and the run of numbers that became known with it and are open; nothing when it was closed before.
local function closed(record, text, day)
  local number, high, open, run = tonumber(text), 0, '', ''
  if record then
    high, open = string.match(record, '^(%d+) %-?%d+(.*)$')
    high = tonumber(high)
  end
  if number > high then
    if number > high + 1 then
      run = number == high + 2 and string.format('%d', high + 1) or string.format('%d-%d', high + 1, number - 1)
      open = (open == '' and ' ' or open) .. run .. ' '
    end
    return string.format('%s %d%s', text, day, open), run
  end
  local at, last = string.find(open, ' ' .. text .. ' ', 1, true)
  local rest = ''
  if not at then
    for from, first, final, to in string.gmatch(open, '()(%d+)%-(%d+) ()') do
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
  open = string.sub(open, 1, at) .. rest .. string.sub(open, last + 1)
  return string.format('%d %d%s', high, day, open == ' ' and '' or open), run
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
