-- Delete documents whose time is over, so many at most, and say how many they were. KEYS: dx.
local now, most = arg(), number()
local over = call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, most)
for _, member in ipairs(over) do
  local length, first = member:match('^(%d+):()')
  erase(member:sub(first, first + length - 1), member:sub(first + length))
end
return {OP, 'ok', #over}
