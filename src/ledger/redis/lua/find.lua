-- find
-- Looks at some of an account's receipts: the place of the last one, where there may be more, and those that have one of some texts.
-- KEYS receipts; ARGV direction (up or down), from, to, how many, the texts
local command = ARGV[1] == 'up' and 'XRANGE' or 'XREVRANGE'
local entries = redis.call(command, KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4])
local marked = {}
for _, entry in ipairs(entries) do
  local text = entry[2][4] or ''
  for n = 5, #ARGV do
    if string.find(text, ARGV[n], 1, true) then
      marked[#marked + 1] = entry
      break
    end
  end
end
local last = #entries == tonumber(ARGV[4]) and entries[#entries][1]
return { last, marked }
