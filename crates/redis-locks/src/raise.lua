-- Sees to it that no token up to this one is given any more.
-- KEYS: the counter of tokens. ARGV: the token. Tokens are below 2^53, so Lua can compare them.
local counter = redis.call('GET', KEYS[1])
if not counter or tonumber(counter) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1])
end
return 1
