-- Write changes, each to a branch of its own, all or none. KEYS: the b, l, r and o of each.
local now, changes, branches, again = arg(), {}, {}, false
for i = 1, number() do
  changes[i] = change(now)
  branches[i] = branch(changes[i].id)
  -- All were written together: if one of them notes this call, it is the second one, whatever came to the others since.
  again = again or (branches[i] and noted(branches[i].ops))
end
for i, c in ipairs(changes) do
  local why, what, more
  if not branches[i] then
    why = 'none'
  elseif is_damaged(branches[i]) then
    return {OP, 'damaged', c.id}
  elseif not again then
    why, what, more = refused(branches[i], c)
  end
  if why then
    return {OP, why, i, what, more}
  end
end
local found = {}
for i, c in ipairs(changes) do
  found[i] = again and written(branches[i], c) or write(branches[i], c)
end
return {OP, 'ok', found}
