-- Revokes a key for good and tells every node. The key's fields, or nothing when there is no such key.
-- KEYS key; ARGV now, channel, message, and of a rotation the key that takes its place: then one that is revoked already is as one that is not
-- there, unless this rotation revoked it, for its first answer may be lost. With the record that the new key was made of: 'changed' alone, and
-- nothing is done, where the key has another one
local key, successor = KEYS[1], ARGV[4]
if redis.call('EXISTS', key) == 0 then return {} end
if successor then
  local ended = redis.call('HMGET', key, 'revoked', 'successor')
  if ended[1] and ended[2] ~= successor then return {} end
  if not ended[1] and ARGV[5] and redis.call('HGET', key, 'record') ~= ARGV[5] then return {'changed'} end
  redis.call('HSET', key, 'successor', successor)
end
redis.call('HSETNX', key, 'revoked', string.format('%d', clock(ARGV[1])))
redis.call('PUBLISH', ARGV[2], ARGV[3])
return redis.call('HMGET', key, 'record', 'revoked')
