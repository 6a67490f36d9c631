-- Says what became of an event.
-- KEYS where it is kept; ARGV id, when it is due again (ms), who is still to be told (JSON), both empty when it is done; 1 where it then counts
-- as dropped
local place, id = KEYS[1], ARGV[1]
local record = redis.call('HGET', place, 'ue' .. id)
if not record then return 'gone' end
if ARGV[2] ~= '' then
  redis.call('HSET', place, 'ue' .. id, ARGV[2] .. string.match(record, '^%d+(.*)$'), 'uew' .. id, ARGV[3])
  return 'kept'
end
redis.call('HDEL', place, 'ue' .. id, 'uew' .. id)
if ARGV[4] == '1' then redis.call('HINCRBY', place, 'ued', 1) end
local open = ' ' .. (redis.call('HGET', place, 'uei') or '')
local first, last = string.find(open, ' ' .. id .. ' ', 1, true)
if first then redis.call('HSET', place, 'uei', string.sub(open, 2, first) .. string.sub(open, last + 1)) end
return 'done'
