-- Forgets the producers that have been silent for a month. One that settles after all begins anew under another name.
-- KEYS account; ARGV now
local account, day = KEYS[1], day_of(clock(ARGV[1]))
local kept, forgotten = {}, 0
for producer in string.gmatch(redis.call('HGET', account, 'producers') or '', '%S+') do
  local seen = string.match(redis.call('HGET', account, 'p' .. producer) or '', ' (%-?%d+)$')
  if seen and day - tonumber(seen) <= 30 then
    kept[#kept + 1] = producer
  else
    redis.call('HDEL', account, 'p' .. producer)
    forgotten = forgotten + 1
  end
end
if forgotten > 0 then redis.call('HSET', account, 'producers', table.concat(kept, ' ')) end
return forgotten
