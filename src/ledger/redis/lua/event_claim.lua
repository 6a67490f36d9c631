-- Takes events that are due, for a while: id, event, who is still to be told, and so on; behind the time at which the next is due (or an empty
-- text), and before how many were dropped and what time it is. An event that cannot be found is forgotten.
-- KEYS where they are kept; ARGV now, lease (ms), the most
local place, now = KEYS[1], clock(ARGV[1])
local next, list, kept = nil, {}, {}
for id in string.gmatch(redis.call('HGET', place, 'uei') or '', '%S+') do
  local due, rest = string.match(redis.call('HGET', place, 'ue' .. id) or '', '^(%d+) (.*)$')
  if due then
    -- No pause is so long: it was put off by a gateway whose clock was ahead.
    if due - now > 3600000 then due = string.format('%d', now) end
    kept[#kept + 1] = id .. ' '
    if due - now <= 0 and #list < 3 * ARGV[3] then
      due = string.format('%d', now + ARGV[2])
      redis.call('HSET', place, 'ue' .. id, due .. ' ' .. rest)
      list[#list + 1], list[#list + 2], list[#list + 3] = id, rest, redis.call('HGET', place, 'uew' .. id) or ''
    end
    if not next or due - next < 0 then next = due end
  end
end
redis.call('HSET', place, 'uei', table.concat(kept))
return { next or '', list, redis.call('HGET', place, 'ued') or '0', string.format('%d', now) }
