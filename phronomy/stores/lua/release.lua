-- Give a claim up, if it is still held, and set the status. KEYS: the branch's b.
local id, owner, fence, status = arg(), arg(), arg(), opt()
local b = branch(id)
-- Whoever has lost the branch releases nothing, and hears of nothing: the fence stays for the next owner.
if b and not b.damaged and b.own == owner and b.fence == fence then
  local was = b.st
  b.own, b['until'], b.st = false, '0.0', status or was
  save(b, was)
end
return {OP, 'ok'}
