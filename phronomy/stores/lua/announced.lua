-- Note that the log of a branch has been announced up to an entry. KEYS: the branch's b.
local id, seq = arg(), arg()
local b = branch(id)
if not b then
  return {OP, 'none'}
end
if b.damaged then
  return {OP, 'damaged', b.id}
end
if b.ann and tonumber(b.ann) < tonumber(seq) then
  b.ann = seq
  save(b, b.st)
end
return {OP, 'ok'}
