-- Completes an entry of the log that is open, or takes it back. An entry that is complete, or another's, stays as it is.
-- KEYS acts, acts by account; ARGV number, account (or an empty text), entry (or an empty text: it is taken back), the text of its beginning
local acts, number = KEYS[1], ARGV[1]
local before = redis.call('HGET', acts, number) or ''
local stored = ARGV[2] .. ' ' .. ARGV[3]
if redis.call('HGET', acts, 'o' .. number) ~= ARGV[4] then
  -- It may be the same end again.
  return before == stored and 'complete' or 'closed'
end
redis.call('HDEL', acts, 'o' .. number)
if ARGV[3] ~= '' then
  redis.call('HSET', acts, number, stored)
  redis.call('HINCRBY', acts, 'bytes', #stored - #before)
  return 'complete'
end
redis.call('HDEL', acts, number)
redis.call('HINCRBY', acts, 'bytes', -#before)
if ARGV[2] ~= '' then redis.call('ZREM', KEYS[2], string.format('%s %016d', ARGV[2], number)) end
return 'withdrawn'
