-- Raises an event of the gateway's own, once an id.
-- KEYS where it is kept; ARGV now, id, kind, how long ago it was (ms), what is told of it, for how many ms its id is known, 1 for an account, and
-- of an event
-- that can wait with how many open ones of its kind there it does; it also does where it would drop another one, unless 1 follows
local place, id, now = KEYS[1], ARGV[2], clock(ARGV[1])
if ARGV[7] == '1' and redis.call('HEXISTS', place, 'avail') == 0 then return 'none' end
local kept, count, is_known = {}, 0, false
for known, till in string.gmatch(redis.call('HGET', place, 'uek') or '', '(%S+):(%d+) ') do
  if till - now > 0 then
    is_known = is_known or known == id
    kept[#kept + 1] = known .. ':' .. till .. ' '
  end
end
if is_known then return 'known' end
if ARGV[8] then
  local fields, of_kind = {}, 0
  for open in string.gmatch(redis.call('HGET', place, 'uei') or '', '%S+') do fields[#fields + 1] = 'ue' .. open end
  if #fields >= 1000 and ARGV[9] ~= '1' then return 'full' end
  -- Gateways of earlier builds raise such events too, so that the events alone say how many there are. Most often fewer are open in all.
  if #fields - ARGV[8] >= 0 then
    for _, event in ipairs(redis.call('HMGET', place, unpack(fields))) do
      if string.match(event or '', '^%d+ (%S+)') == ARGV[3] then of_kind = of_kind + 1 end
    end
    if of_kind - ARGV[8] >= 0 then return 'full' end
  end
end
kept[#kept + 1] = id .. ':' .. string.format('%d', now + ARGV[6]) .. ' '
redis.call('HSET', place, 'uek', table.concat(kept, '', math.max(#kept - 999, 1)))
local raise = events()
raise(place, ARGV[3], now, ARGV[5], id, now - ARGV[4])
return 'raised'
