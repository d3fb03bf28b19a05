-- Frees a lock if it is still its owner's, and tells those who wait.
-- KEYS: the lock. ARGV: the owner, the channel of those who wait. Answers 1, or 0 if it was not.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  -- An account that may not publish frees the lock all the same; those who wait ask again by themselves.
  redis.pcall('PUBLISH', ARGV[2], '')
  return 1
end
return 0
