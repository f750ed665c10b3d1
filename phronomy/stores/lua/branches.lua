-- Branches in the order of their numbers. KEYS: the lists they are taken from.
--
-- "walk": those of one list by number, after a number, and so many at most. "few": those of lists of members, up to a score; if they
-- are more than that, their members alone. "these": those of the members given.
local how, most = arg(), number()
local members, found = {}, {}
if how == 'walk' then
  for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[1], '(' .. arg(), '+inf', 'LIMIT', 0, most)) do
    found[#found + 1] = shown(branch(id))
  end
  return {OP, 'ok', found}
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
  local b = branch(member:sub(17))
  if b then
    found[#found + 1] = shown(b)
  end
end
return {OP, 'ok', found}
