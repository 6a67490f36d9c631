-- Gives a hold back (AccountState::release): what it held, or an empty text when it was gone; behind a blank the run of numbers that became
-- known with the call's and are open, where there are some. `apart`, and nothing is changed, while a cluster has the account and the hash of the
-- hold's end user at two masters.
-- KEYS account, order of expiry; ARGV id; for a call that has its number: now, field of the producer, number, birth of the producer
local account = KEYS[1]
local give_back = holds()
local amount = give_back(account, ARGV[1], 0)
if amount == 'apart' then return amount end
redis.call('ZREM', KEYS[2], ARGV[1])
local run = ''
if ARGV[3] and redis.call('EXISTS', account) == 1 then
  local record = redis.call('HGET', account, ARGV[3])
  if record or not stale(account, ARGV[5]) then
    local numbers, opened = closed(record, ARGV[4], day_of(clock(ARGV[2])))
    if numbers then
      run = opened
      redis.call('HSET', account, ARGV[3], numbers)
      if not record then meet_producer(account, ARGV[3]) end
    end
  end
end
if run ~= '' then return (amount or '') .. ' ' .. run end
return amount or ''
