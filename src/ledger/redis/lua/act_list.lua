-- A page of the log, newest first: number, entry, number, entry, and so on. One more than asked for, or than fits, says that another page
-- follows.
-- KEYS acts, acts by account; ARGV how many, before which number (or an empty text), account (or an empty text), how many bytes of entries
local acts, most, room = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[4] or 1048576)
local page = {}
-- False when no more is asked for.
local function keep(number)
  local name = string.format('%d', number)
  local stored = redis.call('HGET', acts, name)
  local of, entry = string.match(stored or '', '^(%S*) (.*)$')
  -- The index may know of a number from before the log was lost.
  if not entry or (ARGV[3] ~= '' and of ~= ARGV[3]) then return true end
  page[#page + 1] = name
  page[#page + 1] = entry
  room = room - #entry
  return #page < 2 * most and (room >= 0 or #page < 4)
end
if ARGV[3] ~= '' then
  local from = '[' .. ARGV[3] .. ' :'
  if ARGV[2] ~= '' then from = string.format('(%s %016d', ARGV[3], ARGV[2]) end
  local found = redis.call('ZREVRANGEBYLEX', KEYS[2], from, '[' .. ARGV[3] .. ' 0', 'LIMIT', 0, most)
  for _, member in ipairs(found) do
    if not keep(tonumber(string.match(member, ' (%d+)$'))) then break end
  end
  return page
end
local bounds = redis.call('HMGET', acts, 'first', 'last')
local number = tonumber(bounds[2] or 0)
if ARGV[2] ~= '' then number = math.min(number, tonumber(ARGV[2]) - 1) end
local first = tonumber(bounds[1] or 1)
while number >= first and keep(number) do number = number - 1 end
return page
