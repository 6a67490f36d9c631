-- Keeps a turn for so much longer, or ends it (0), where it is still that of whoever took it.
-- KEYS turn; ARGV the text by which it was taken, for how long (ms)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
