-- What was agreed with an account: its tier (an empty text: stays) and its quota (empty: stays; `none`: the tier's).
local function agree(account, tier, quota)
  if tier ~= '' then redis.call('HSET', account, 'tier', tier) end
  if quota == 'none' then
    redis.call('HDEL', account, 'quota')
  elseif quota ~= '' then
    redis.call('HSET', account, 'quota', quota)
  end
end
