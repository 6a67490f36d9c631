-- Switches maintenance and tells every node.
-- KEYS flag; ARGV channel, message, on or off
redis.call('SET', KEYS[1], ARGV[3])
redis.call('PUBLISH', ARGV[1], ARGV[2])
return ARGV[3]
