-- Write a change to a branch. KEYS: its b, l, r and o, then the c of the root checkpoints in it, then the t of the texts in it.
local id, now, seq, most = arg(), arg(), arg(), number()
local claim, owner, fence = arg(), arg(), arg()
local take, lease, release = opt(), opt(), arg() == '1'
local head, status, announce = opt(), opt(), arg() == '1'
local what = added()

local b = branch(id)
if not b then
  return {OP, 'none'}
end
-- A second call of the same number: the first was written, and its answer was lost on the way.
if noted(b.ops) then
  b.seq = string.format('%.0f', tonumber(seq) + #what.entries) -- as it was then: what others wrote since is still to be read
  return {OP, 'ok', shown(b)}
end
-- In the order of `grown`: lost, behind, held, and an id that is taken last.
if claim == 'other own' or (claim == 'own' and (fence ~= b.fence or owner ~= b.own)) then
  return {OP, 'lost'}
end
-- A note is for who holds the branch now. The empty text is nobody: the branch is free, or its lease is over.
local leaves, there = claim == 'holder', held(b, now) and b.own or ''
if seq ~= b.seq or claim == 'other holder' or (leaves and (fence ~= b.fence or owner ~= there)) then
  return {OP, 'behind', id}
end
if take and held(b, now) then
  return {OP, 'held', shown(b)}
end
local before = tonumber(b.seq)
if before + #what.entries >= most then
  return {OP, 'full'}
end
local kind, taken_id = taken(id, what)
if kind then
  return {OP, 'taken', kind, taken_id}
end

-- From here on everything is written. Nothing below can fail: what a script has written is not undone.
local was = b.st
if take then
  b.own, b.fence = take, string.format('%.0f', tonumber(b.fence) + 1)
end
if lease then
  b['until'] = lease
end
if release then
  b.own, b['until'] = false, '0.0'
end
if announce and not b.ann then
  b.ann = b.seq
end
if tonumber(b.made) == 0 then
  b.made = now
end
b.seq = string.format('%.0f', before + #what.entries)
-- The first note that was left counts, until a root checkpoint takes all of them in.
if leaves and not b.handed then
  b.handed = string.format('%.0f', before + 1)
  call('ZADD', T .. 'hand', b.n, b.id)
elseif b.handed and head then
  b.handed = false
  call('HDEL', T .. 'b:' .. b.id, 'handed')
  call('ZREM', T .. 'hand', b.id)
end
-- Never back, whatever the writer's clock says: the order of ends is read off it.
if tonumber(now) > tonumber(b.at) then
  b.at = now
end
b.head, b.st, b.ops = head or b.head, status or b.st, note(b.ops)
save(b, was)
add(b, before, what)
return {OP, 'ok', shown(b)}
