-- Grants a lock that is free, with a token, in one step.
-- KEYS: the lock, the counter of tokens. ARGV: the owner, the TTL in milliseconds.
-- Answers 1 and the token, or 0 and for how many milliseconds the lock is taken.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return {0, redis.call('PTTL', KEYS[1])}
end
if redis.call('EXISTS', KEYS[2]) == 0 then
  -- A server that has lost its data begins above what it gave before, unless its clock went back or it granted
  -- more than one lock a microsecond. Below 2^53, which is as far as Lua counts, until the year 2242.
  local now = redis.call('TIME')
  redis.call('SET', KEYS[2], string.format('%.0f', now[1] * 1048576 + now[2]))
end
local token = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
return {1, token}
