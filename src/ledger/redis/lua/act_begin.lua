-- Begins an entry of the log of acts, unless it is begun, and drops the oldest above a maximum, two for one, or until there is room. The entry's
-- number.
-- KEYS acts, acts by account; ARGV account (or an empty text), entry, how many there may be, how many bytes of them, a text that no other
-- beginning has
-- acts             first, last: the numbers there are;  bytes: of all entries;  <number>  account (or nothing), a blank, the entry;
--                  o<number>  the text of its beginning, until it is ended: that of an entry that is added complete stays
-- acts by account  all at 0, in the order of their texts: account, a blank, the number in 16 digits
local acts, by_account, account = KEYS[1], KEYS[2], ARGV[1]
-- It may be the same beginning again, for its first answer was lost. Others may have begun meanwhile.
local last, newest = tonumber(redis.call('HGET', acts, 'last') or 0), {}
for number = last, math.max(last - 63, 1), -1 do newest[#newest + 1] = string.format('o%d', number) end
for at, beginning in ipairs(#newest > 0 and redis.call('HMGET', acts, unpack(newest)) or {}) do
  if beginning == ARGV[5] then return string.sub(newest[at], 2) end
end
local number = redis.call('HINCRBY', acts, 'last', 1)
local name = string.format('%d', number)
local stored = account .. ' ' .. ARGV[2]
redis.call('HSET', acts, name, stored, 'o' .. name, ARGV[5])
if account ~= '' then redis.call('ZADD', by_account, 0, string.format('%s %016d', account, number)) end
local first = tonumber(redis.call('HGET', acts, 'first') or 1)
local bytes = tonumber(redis.call('HGET', acts, 'bytes') or 0) + #stored
local dropped = 0
while first < number and dropped < 64 do
  local is_many = dropped < 2 and number - first >= tonumber(ARGV[3])
  if not is_many and bytes <= tonumber(ARGV[4]) then break end
  local oldest = string.format('%d', first)
  local entry = redis.call('HGET', acts, oldest) or ''
  local of = string.match(entry, '^(%S*) ') or ''
  if of ~= '' then redis.call('ZREM', by_account, string.format('%s %016d', of, first)) end
  redis.call('HDEL', acts, oldest, 'o' .. oldest)
  bytes = bytes - #entry
  first = first + 1
  dropped = dropped + 1
end
redis.call('HSET', acts, 'first', string.format('%d', first), 'bytes', string.format('%d', math.max(bytes, 0)))
return name
