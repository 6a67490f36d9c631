-- Usage by UTC day and model, of an account; of a key only the first two:
-- u<day> <model>  requests, prompt tokens, completion tokens
-- c<day> <model>  their cost
-- d<day>          the models of the day, a line each;  first, last: the days there are

local function counted(record, prompt, completion)
  local requests, prompts, completions = 0, 0, 0
  if record then
    requests, prompts, completions = string.match(record, '^(%d+) (%d+) (%d+)$')
  end
  return string.format('%d %d %d', requests + 1, math.min(prompts + prompt, 9007199254740992),
    math.min(completions + completion, 9007199254740992))
end

-- Makes a model's row of a day known to reports.
local function open_row(account, day, model)
  local fact = redis.call('HMGET', account, 'd' .. day, 'first', 'last')
  local first = math.min(tonumber(fact[2] or day), day)
  local last = math.max(tonumber(fact[3] or day), day)
  redis.call('HSET', account, 'd' .. day, (fact[1] or '') .. model .. '\n', 'first', first, 'last', last)
end
