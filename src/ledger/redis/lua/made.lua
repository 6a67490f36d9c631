-- Steps that may be sent twice, for their first answer may be lost. Each has a text that no other step has, and a field of the account those of
-- the last minute, at most 64, which audits of earlier versions pass over:
-- um  a text and until when (ms) it is kept: text:ms, a blank behind each

-- Whether the step of this text was made before; and if not, what is kept once it is.
local function made(account, text, now)
  local kept = {}
  for known, till in string.gmatch(redis.call('HGET', account, 'um') or '', '(%S+):(%d+) ') do
    if known == text then return true end
    if till - now > 0 then kept[#kept + 1] = known .. ':' .. till .. ' ' end
  end
  kept[#kept + 1] = text .. ':' .. string.format('%d', now + 60000) .. ' '
  return false, table.concat(kept, '', math.max(#kept - 63, 1))
end
