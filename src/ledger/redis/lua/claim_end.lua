-- Ends an account's claim on a payment that it has not posted: POST refuses it from then on, up to this turn. What the account was given by
-- hand under the payment's reference counts as the payment, if it is a top-up.
-- KEYS account, ended claims; ARGV reference, turn
local text = redis.call('HGET', KEYS[1], credit_field(ARGV[1]))
if text then
  local kind = string.match(text, '^%-?%d+ %-?%d+ ?(%S*)')
  if kind == '' or kind == 'top_up' then return 'posted' end
end
local ended = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or '-1')
if ended < tonumber(ARGV[2]) then redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) end
return 'ended'
