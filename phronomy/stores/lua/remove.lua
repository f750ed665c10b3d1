-- Take branches away, and let others stand without what they went on from. KEYS: the b of the branches that go.
local now = arg()
local going, seqs, apart, staying = {}, {}, {}, {}
for i = 1, number() do
  going[i] = arg()
  seqs[going[i]] = arg()
end
for i = 1, number() do
  local one = {id = arg(), entries = {}}
  for j = 1, number() do
    one.entries[j] = {seq = number(), packed = arg()}
  end
  apart[i], staying[one.id] = one, true
end

-- The branches that could note the number go, so the tenant notes it.
if noted(call('HGET', T .. 'm', 'ops')) then
  return {OP, 'ok'}
end
-- All is judged before anything goes: a refusal in the middle would leave children without a parent.
for i, id in ipairs(going) do
  local b = branch(id)
  if b and b.damaged then
    return {OP, 'damaged', id}
  end
  if not b or b.seq ~= seqs[id] or held(b, now) then
    return {OP, 'behind', id}
  end
  for _, member in ipairs(call('ZRANGE', T .. 'F:' .. id, 0, -1)) do
    local child = member:sub(17)
    if not seqs[child] and not staying[child] then
      return {OP, 'behind', child}
    end
  end
  going[i] = b
end
for _, one in ipairs(apart) do
  one.branch = branch(one.id)
  if not one.branch then
    return {OP, 'behind', one.id}
  end
  if one.branch.damaged then
    return {OP, 'damaged', one.id}
  end
  for _, entry in ipairs(one.entries) do
    if entry.seq <= tonumber(one.branch.ps) or entry.seq > tonumber(one.branch.seq) then
      return {OP, 'behind', one.id}
    end
  end
end

local function roots(b, packed, seq, act)
  local head = header(packed)
  if is_root(head) then
    act(b, seq, head[2], text_of(head[3]), text_of(head[4]))
  end
end

for _, one in ipairs(apart) do
  local b = one.branch
  for _, entry in ipairs(one.entries) do
    local place = entry.seq - tonumber(b.ps) - 1
    roots(b, call('LINDEX', T .. 'l:' .. b.id, place), entry.seq, strike)
    call('LSET', T .. 'l:' .. b.id, place, entry.packed)
    roots(b, entry.packed, entry.seq, enroll)
  end
  if b.pb then
    call('HDEL', T .. 'b:' .. b.id, 'pb')
    call('ZREM', T .. 'F:' .. b.pb, pad(b.n) .. b.id)
  end
end
for _, b in ipairs(going) do
  local member = pad(b.n) .. b.id
  local numbers = redis.pcall('HVALS', T .. 'o:' .. b.id)
  local log = redis.pcall('LRANGE', T .. 'l:' .. b.id, 0, -1)
  local ids = redis.pcall('ZRANGE', T .. 'r:' .. b.id, 0, -1)
  -- Before what they name is taken off: something else may stand under these keys. UNLINK, not DEL: a log may be long, and its memory
  -- is given back beside the work.
  call('UNLINK', T .. 'b:' .. b.id, T .. 'l:' .. b.id, T .. 'r:' .. b.id, T .. 'o:' .. b.id)
  for _, n in ipairs(numbers) do
    unlist(b, n)
  end
  for i, packed in ipairs(log) do
    roots(b, packed, tonumber(b.ps) + i, strike)
  end
  -- The ids of rows that cannot be read.
  for _, id in ipairs(ids) do
    call('DEL', T .. 'c:' .. id)
  end
  call('ZREM', T .. 'B', b.id)
  call('ZREM', T .. 'R:' .. b.run, b.id)
  call('ZREM', T .. 'una', b.id)
  call('ZREM', T .. 'hand', b.id)
  call('ZREM', T .. 'run', member)
  call('ZREM', T .. 'end', member)
  if b.thread then
    call('ZREM', T .. 'H:' .. b.thread, b.id)
    call('ZREM', T .. 'ho:' .. b.thread, member)
    call('ZREM', T .. 'he:' .. b.thread, member)
  end
  if b.pb then
    call('ZREM', T .. 'F:' .. b.pb, member)
  end
end
call('HSET', T .. 'm', 'ops', note(call('HGET', T .. 'm', 'ops')))
return {OP, 'ok'}
