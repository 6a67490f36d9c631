-- Some usage rows, and where the next ones begin (day, place) where there are more.
-- KEYS account; ARGV the first day, the place in it, the last day, the most rows
local fact = redis.call('HMGET', KEYS[1], 'first', 'last')
if not fact[1] then return { {} } end
local asked, first = tonumber(ARGV[1]), tonumber(fact[1])
local place = tonumber(ARGV[2])
if first > asked then asked, place = first, 0 end
local rows, day, at = debits(KEYS[1], asked, place, math.min(tonumber(fact[2]), tonumber(ARGV[3])), tonumber(ARGV[4]))
if day then return { rows, day, at } end
return { rows }
