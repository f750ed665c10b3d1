-- Add a branch. KEYS: its b, l, r and o, then the c of its root checkpoints, then the t of its texts.
local exclusive = arg() == '1'
local b = {id = arg()}
for i = 2, #FIELDS - 1 do
  b[FIELDS[i]] = opt()
end
local what = added()

-- The same call once more, or another branch under this id: which, only the number tells.
local there = branch(b.id)
if there and noted(there.ops) then
  return {OP, 'ok'}
end
-- Open and ended branches of a thread have lists of their own, so this costs the same in the thousandth run.
if exclusive and b.thread then
  local open = call('ZREVRANGE', T .. 'ho:' .. b.thread, 0, 0)[1]
  if open then
    return {OP, 'occupied', shown(listed(open:sub(17), open:sub(1, 16)))}
  end
  local last = call('ZREVRANGE', T .. 'he:' .. b.thread, 0, 0)[1]
  if last and last:sub(17) ~= b.pb then
    return {OP, 'behind', last:sub(17)}
  end
end
if b.pb then
  local parent = branch(b.pb)
  if parent and parent.damaged then
    return {OP, 'damaged', parent.id}
  end
  if not parent or tonumber(b.ps) > tonumber(parent.seq) then
    return {OP, 'parent', parent and shown(parent) or false}
  end
end
if there then
  return {OP, 'taken', 'branch', b.id}
end
local kind, id = taken(b.id, what)
if kind then
  return {OP, 'taken', kind, id}
end

b.n = call('HINCRBY', T .. 'm', 'b', 1)
b.ops = note(nil)
save(b, false)
call('ZADD', T .. 'B', b.n, b.id)
call('ZADD', T .. 'R:' .. b.run, b.n, b.id)
if b.thread then
  call('ZADD', T .. 'H:' .. b.thread, b.n, b.id)
end
if b.pb then
  call('ZADD', T .. 'F:' .. b.pb, 0, pad(b.n) .. b.id)
end
add(b, tonumber(b.ps), what)
return {OP, 'ok'}
