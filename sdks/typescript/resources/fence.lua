-- Checks a token against a high-water mark and, if it passes, runs one command: in one step.
-- KEYS[1]  the mark's key; KEYS[2..] those that the command touches, in the same hash slot
-- ARGV[1]  the token, a decimal without leading zeros, 1 to 2^63 - 1
-- ARGV[2..] the command
-- Returns {1, the command's answer}, or {0, the highest token that was seen}.

-- Lua's numbers are doubles, which tell numbers above 2^53 no more apart. So tokens are compared as digits: by
-- their length, then by their bytes. The operator < would ask the locale.
local function is_lower(left, right)
    if #left ~= #right then
        return #left < #right
    end
    for at = 1, #left do
        local l, r = string.byte(left, at), string.byte(right, at)
        if l ~= r then
            return l < r
        end
    end
    return false
end

local function is_token(text)
    return #text <= 19 and string.find(text, '^[1-9][0-9]*$') ~= nil
end

local token = ARGV[1]
if not is_token(token) then
    return redis.error_reply('FENCE the token is not a decimal from 1 to 2^63 - 1; send the number of a token that was granted')
end
local highest = redis.call('GET', KEYS[1])
if highest then
    if not is_token(highest) then
        return redis.error_reply('FENCE the mark is not a number; set it to the highest token that was granted')
    end
    if is_lower(token, highest) then
        return {0, highest}
    end
end
if highest ~= token then
    redis.call('SET', KEYS[1], token)
end
if #ARGV == 1 then
    return {1, false}
end
return {1, redis.call(unpack(ARGV, 2))}
