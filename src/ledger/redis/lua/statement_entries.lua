-- Some credit entries, oldest first: reference, entry, and so on.
-- KEYS account, order of credit entries; ARGV the places of the first and the last
local list = {}
read_credits(KEYS[1], redis.call('ZRANGE', KEYS[2], ARGV[1], ARGV[2]), list)
return list
