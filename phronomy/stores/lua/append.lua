-- Write a change to a branch. KEYS: its b, l, r and o, then the c of the root checkpoints in it, then the t of the texts in it.
local c = change(arg())
local b = branch(c.id)
if not b then
  return {OP, 'none'}
end
if is_damaged(b) then
  return {OP, 'damaged', b.id}
end
-- A second call of the same number: the first was written, and its answer was lost on the way.
if noted(b.ops) then
  return {OP, 'ok', written(b, c)}
end
local why, what, more = refused(b, c)
if why then
  return {OP, why, what, more}
end
return {OP, 'ok', write(b, c)}
