-- Credit entries, newest first: reference, entry, and so on. An empty text when none is known by the reference that the page before ended with.
-- KEYS account, order of credit entries; ARGV how many, that reference (or an empty text)
local first = 0
if ARGV[2] ~= '' then
  local rank = redis.call('ZREVRANK', KEYS[2], ARGV[2])
  if not rank then return '' end
  first = rank + 1
end
local list = {}
read_credits(KEYS[1], redis.call('ZREVRANGE', KEYS[2], first, first + ARGV[1] - 1), list)
return list
