-- Credit entries. A field of the account for each: t<reference> is `amount, at (ms), kind, balance after it, note`, blanks between the parts.
-- Entries of earlier versions have only the first two, and those versions read no more of others. Their order is a key of its own, by
-- time; entries that an earlier version has posted are missing in it until somebody looks (credits.rs).

-- `tier` is the account's tier, and no reference is empty.
local function credit_field(reference)
  return reference == 'ier' and 't' or 't' .. reference
end

-- Puts the entries of some references into a list: reference, entry, and so on.
local function read_credits(account, references, list)
  for first = 1, #references, 500 do
    local fields = {}
    for at = first, math.min(first + 499, #references) do fields[#fields + 1] = credit_field(references[at]) end
    for n, text in ipairs(redis.call('HMGET', account, unpack(fields))) do
      list[#list + 1] = references[first + n - 1]
      list[#list + 1] = text
    end
  end
end
