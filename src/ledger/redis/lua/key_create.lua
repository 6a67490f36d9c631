-- Writes a key's record, unless there is one. 1 where this step wrote it, now or when it was sent before, for its first answer may be lost.
-- KEYS key; ARGV record, a text that no other step has
local key = KEYS[1]
if redis.call('HSETNX', key, 'record', ARGV[1]) == 1 then
  redis.call('HSET', key, 'made', ARGV[2])
  return 1
end
return redis.call('HGET', key, 'made') == ARGV[2] and 1 or 0
