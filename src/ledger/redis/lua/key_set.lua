-- Changes a key's record, unless somebody else has meanwhile, and tells every node. A rotation changes none that is revoked, and
-- finds done what it did itself, for its first answer may be lost.
-- KEYS key; ARGV the record before, the record, channel, message, and of a rotation the key that takes its place; else '' and what
-- `revoked` was before, '' for nothing: a rotation without overlap changes that alone
local key = KEYS[1]
local ended = redis.call('HMGET', key, 'revoked', 'successor')
local is_rotation = ARGV[5] and ARGV[5] ~= ''
if is_rotation then
  if ended[1] then return 'revoked' end
  if ended[2] == ARGV[5] then return 'set' end
elseif ARGV[6] and (ended[1] or '') ~= ARGV[6] then
  return 'changed'
end
if redis.call('HGET', key, 'record') ~= ARGV[1] then return 'changed' end
redis.call('HSET', key, 'record', ARGV[2])
if is_rotation then redis.call('HSET', key, 'successor', ARGV[5]) end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 'set'
