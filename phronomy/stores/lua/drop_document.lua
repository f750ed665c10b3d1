-- Delete a document, of a version if one is given. KEYS: the d and D of its kind, and dx.
local kind, key, now, version = arg(), arg(), arg(), opt()
local found = live(call('HGET', KEYS[2], key), now)
if found and version and found ~= version then
  return {OP, 'behind'}
end
erase(kind, key)
return {OP, 'ok'}
