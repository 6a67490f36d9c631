-- Amounts are int64 in 10^-12 credit. A Lua number is a double and would round them, so here they are canonical decimal
-- texts: compared as texts, and added only by Redis (HINCRBY), which counts in int64.

local function negated(amount)
  if amount == '0' then return amount end
  if string.byte(amount) == 45 then return string.sub(amount, 2) end
  return '-' .. amount
end

local function less(a, b)
  local byte = string.byte
  local below = byte(a) == 45
  if below ~= (byte(b) == 45) then return below end
  if below then a, b = b, a end
  if #a ~= #b then return #a < #b end
  return a < b
end

-- Adds to a field of an account. The sum, rounded as a double is (true where nothing was added); false, and nothing changed, when it leaves the
-- range. Every other error, such as a memory that is full, ends the script as it would anywhere else: it says nothing about the amount.
local function add(account, field, amount)
  if amount == '0' then return true end
  local reply = redis.pcall('HINCRBY', account, field, amount)
  if type(reply) == 'number' then return reply end
  if string.find(reply.err, 'overflow', 1, true) then return false end
  redis.call('HINCRBY', account, field, amount)
  return true
end

-- `first + the others`, exactly; nothing when it leaves the range.
local function sum(account, first, ...)
  redis.call('HSET', account, 'sum', first)
  local good = true
  for _, amount in ipairs({...}) do
    good = good and add(account, 'sum', amount)
  end
  local result = redis.call('HGET', account, 'sum')
  redis.call('HDEL', account, 'sum')
  return good and result or nil
end
