-- Lets a lock live for another TTL, if it is still its owner's.
-- KEYS: the lock. ARGV: the owner, the TTL in milliseconds. Answers 1, or 0 if it is not.
-- A key that was given another type is not the owner's either: pcall, not call.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
