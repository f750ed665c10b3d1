-- Documents of a kind, in the order of their keys, after one of them; and the last key that was looked at, false at the end of the
-- list. KEYS: the d and D of the kind.
local after, most, now = arg(), number(), arg()
local keys = call('ZRANGEBYLEX', KEYS[1], '(' .. after, '+', 'LIMIT', 0, most)
local found = {}
for _, key in ipairs(keys) do
  local packed = call('HGET', KEYS[2], key)
  if live(packed, now) then
    found[#found + 1] = {key, packed}
  end
end
return {OP, 'ok', found, #keys == most and keys[most]}
