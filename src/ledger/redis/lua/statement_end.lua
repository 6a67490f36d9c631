-- How an account stands now: what is available, committed and used, its credit entries from a place on, and its usage rows from a day on,
-- which is not over. The number of rows instead where they are too many.
-- KEYS account, order of credit entries; ARGV the place, the most entries, the day, the most rows
local account = KEYS[1]
local fact = redis.call('HMGET', account, 'avail', 'committed', 'used', 'first', 'last')
if not fact[1] then return false end
local entries, rows, more = {}, {}, nil
read_credits(account, redis.call('ZRANGE', KEYS[2], ARGV[1], ARGV[1] + ARGV[2] - 1), entries)
if fact[4] then
  local first = math.max(tonumber(fact[4]), tonumber(ARGV[3]))
  rows, more = debits(account, first, 0, tonumber(fact[5]), tonumber(ARGV[4]))
end
if more then return #rows end
return { fact[1], fact[2], fact[3], entries, rows }
