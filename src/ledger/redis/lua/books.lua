-- Everything of an account, as one moment has it: for the audit.
-- KEYS account, order of expiry; ARGV now
return { string.format('%d', clock(ARGV[1])), redis.call('HGETALL', KEYS[1]), redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(+inf') }
