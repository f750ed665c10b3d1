-- Make a lease last until a time. KEYS: the branch's b.
local id, owner, fence, lease = arg(), arg(), arg(), arg()
local b = branch(id)
-- Owner and fence, not the time: a lease that ran out is renewed as long as nobody took over.
if b and b.damaged then
  return {OP, 'damaged', id}
end
if not b or b.own ~= owner or b.fence ~= fence then
  return {OP, 'lost'}
end
b['until'] = lease
save(b, b.st)
return {OP, 'ok', shown(b)}
