-- Forgets the producers that have been silent for a month, and remembers the youngest of them: what is theirs is stale.
-- By the earlier of the days of Redis and of the gateway that asks: one clock alone, ahead for a moment, would make all of them stale.
-- KEYS account; ARGV now, the gateway's day
local account, day = KEYS[1], math.min(day_of(clock(ARGV[1])), tonumber(ARGV[2]))
local latest, forgotten = tonumber(redis.call('HGET', account, 'forgotten') or -1), 0
for list, kind in pairs({ producers = 'p', numbered = 'n' }) do
  local kept, silent = {}, 0
  for producer in string.gmatch(redis.call('HGET', account, list) or '', '%S+') do
    local seen = string.match(redis.call('HGET', account, kind .. producer) or '', '^%d+ (%-?%d+)')
    -- Those of earlier versions do not say when they were born.
    local born = kind == 'n' and tonumber(string.sub(producer, 1, 8), 16) or 0
    -- Whoever was born within a month is not silent: what it closed stands at a day before that where the clock was behind.
    if seen and day - math.max(tonumber(seen), math.floor(born / 86400)) <= 30 then
      kept[#kept + 1] = producer
    else
      redis.call('HDEL', account, kind .. producer)
      silent = silent + 1
      latest = math.max(latest, born)
    end
  end
  if silent > 0 then redis.call('HSET', account, list, table.concat(kept, ' ')) end
  forgotten = forgotten + silent
end
if forgotten > 0 then redis.call('HSET', account, 'forgotten', string.format('%d', latest)) end
return forgotten
