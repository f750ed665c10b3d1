-- Branches in the order of their numbers. KEYS: the lists they are taken from.
--
-- "walk": those of one list by number, after a number, and so many at most. "back": those before a number, from the last. "one": the
-- number of that with an id. "few": those of lists of members, up to a score; if they
-- are more than that, their members alone. "these": those of the members given.
local how, most = arg(), number()
local members, found = {}, {}
if how == 'walk' or how == 'back' then
  local command, limit = 'ZRANGEBYSCORE', '+inf'
  if how == 'back' then
    command, limit = 'ZREVRANGEBYSCORE', '-inf'
  end
  local places = call(command, KEYS[1], '(' .. arg(), limit, 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #places, 2 do
    found[#found + 1] = shown(listed(places[i], places[i + 1]))
  end
  return {OP, 'ok', found}
end
if how == 'one' then
  return {OP, 'ok', call('ZSCORE', KEYS[1], arg())}
end
if how == 'these' then
  for i = at + 1, #ARGV do
    members[#members + 1] = ARGV[i]
  end
else
  local highest = arg()
  for _, key in ipairs(KEYS) do
    for _, member in ipairs(call('ZRANGEBYSCORE', key, '-inf', highest)) do
      members[#members + 1] = member
    end
  end
  if #members > most then
    return {OP, 'many', members}
  end
  table.sort(members)
end
for _, member in ipairs(members) do
  if branch(member:sub(17)) then  -- else it was deleted since the members were given
    found[#found + 1] = shown(listed(member:sub(17), member:sub(1, 16)))
  end
end
return {OP, 'ok', found}
