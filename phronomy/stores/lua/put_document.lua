-- Write a document. KEYS: the d and D of its kind, and dx. `seen` is the version that the writer has seen, "" for none.
local kind, key, now, seen = arg(), arg(), arg(), arg()
local version, expires, body = arg(), arg(), arg()
local found, versions = live(call('HGET', KEYS[2], key), now)
-- A second call: the first was written, and its answer was lost on the way. No other write has this version. Somebody may have
-- written since, who had read it.
if found and (' ' .. versions .. ' '):find(' ' .. version .. ' ', 1, true) then
  return {OP, 'ok'}
end
if (found or '') ~= seen then
  return {OP, 'behind'}
end
local line = found and (versions:match('%S+ %S+ %S+$') or versions) .. ' ' .. version or version
call('HSET', KEYS[2], key, line .. '\n' .. expires .. '\n' .. body)
call('ZADD', KEYS[1], 0, key)
if expires ~= '' then
  call('ZADD', KEYS[3], expires, timed(kind, key))
else
  call('ZREM', KEYS[3], timed(kind, key))
end
return {OP, 'ok'}
