-- Makes an operator, unless it is there, or there are too many. The same record there is that of this step: its first answer may be lost.
-- KEYS operators; ARGV id, record (with a text that no other has), the most operators
-- An operator has a field of its id, and once its token is revoked another one: r<id>, since when.
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then return known == ARGV[2] and 'created' or 'exists' end
-- No id begins with an r.
local count = 0
if redis.call('HLEN', KEYS[1]) - ARGV[3] >= 0 then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.byte(field) ~= 114 then count = count + 1 end
  end
end
if count - ARGV[3] >= 0 then return 'full' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 'created'
