-- What every script that changes something has besides. OPEN and ENDED are put before it: sets of statuses.
local KNOWN = 96 -- bytes: the numbers of the last eight changes

local function noted(ops)
  return ops and ops:find(OP, 1, true)
end

local function note(ops)
  return ((ops or '') .. OP):sub(-KNOWN)
end

-- True if a write to the branch would stop half way: something else stands in the place of its row, its log or its lists.
local ASKS = {l = {'LINDEX', 0}, r = {'ZSCORE', ''}, o = {'HEXISTS', ''}}
local function is_damaged(b)
  local damaged = b.damaged
  for name, ask in pairs(ASKS) do
    damaged = damaged or type(redis.pcall(ask[1], T .. name .. ':' .. b.id, ask[2])) == 'table' -- an error
  end
  return damaged
end

local function held(b, now)
  return b.own and tonumber(b['until']) > tonumber(now)
end

-- Write what may have changed in a branch, and where it is listed. `was` is its status before, false for a new one.
local function save(b, was)
  local values = {}
  for i = 1, #FIELDS do
    local value = b[FIELDS[i]]
    if value then
      values[#values + 1] = FIELDS[i]
      values[#values + 1] = value
    end
  end
  call('HSET', T .. 'b:' .. b.id, unpack(values))
  if was and not b.own then
    call('HDEL', T .. 'b:' .. b.id, 'own')
  end
  local member = pad(b.n) .. b.id
  if b.st == 'running' then
    call('ZADD', T .. 'run', b.own and b['until'] or '-inf', member)
  elseif was == 'running' then
    call('ZREM', T .. 'run', member)
  end
  if ENDED[b.st] then
    call('ZADD', T .. 'end', b.at, member)
  elseif ENDED[was] then
    call('ZREM', T .. 'end', member)
  end
  if b.ann and tonumber(b.ann) < tonumber(b.seq) then
    call('ZADD', T .. 'una', b.n, b.id)
  elseif b.ann then
    call('ZREM', T .. 'una', b.id)
  end
  if not b.thread then
    return
  end
  if OPEN[b.st] and not OPEN[was] then
    call('ZADD', T .. 'ho:' .. b.thread, 0, member)
  elseif OPEN[was] and not OPEN[b.st] then
    call('ZREM', T .. 'ho:' .. b.thread, member)
  end
  if ENDED[b.st] then
    call('ZADD', T .. 'he:' .. b.thread, b.at, member)
  elseif ENDED[was] then
    call('ZREM', T .. 'he:' .. b.thread, member)
  end
end

-- Root checkpoints

local function enroll(b, seq, id, parent, label)
  call('SET', T .. 'c:' .. id, b.id)
  call('ZADD', T .. 'r:' .. b.id, seq, id)
  if parent then
    call('SADD', T .. 'k:' .. parent, id)
  end
  if label then
    local member = pad(b.n) .. pad(seq) .. id
    call('ZADD', T .. 'L:' .. label, 0, member)
    call('ZADD', T .. 'LL', 0, member)
  end
end

local function strike(b, seq, id, parent, label)
  call('DEL', T .. 'c:' .. id)
  call('ZREM', T .. 'r:' .. b.id, id)
  if parent then
    call('SREM', T .. 'k:' .. parent, id)
  end
  if label then
    local member = pad(b.n) .. pad(seq) .. id
    call('ZREM', T .. 'L:' .. label, member)
    call('ZREM', T .. 'LL', member)
  end
end

-- Pending approvals

-- Of a pending approval (its header), each list that it stands in but that of times.
local function lists(row)
  local found = {'w', 'f:run:' .. row[3], 'f:agent:' .. row[5]}
  if row[1] then
    found[#found + 1] = 'f:id:' .. row[1]
  end
  if row[6] then
    found[#found + 1] = 'f:tool:' .. row[6]
  end
  if row[4] then
    found[#found + 1] = 'f:thread:' .. row[4]
  end
  if row[7] then
    found[#found + 1] = 'f:label:' .. row[7]
  end
  if row[8] then
    found[#found + 1] = 'f:risk:' .. row[8]
  end
  return found
end

local function list(row, body)
  local n = call('HINCRBY', T .. 'm', 'p', 1)
  call('HSET', T .. 'P', n, cjson.encode(row) .. '\n' .. body)
  call('HSET', T .. 'o:' .. row[2], row[1], n)
  for _, name in ipairs(lists(row)) do
    call('ZADD', T .. name, row[9], pad(n))
  end
  if row[10] then
    call('ZADD', T .. 'x', row[10], pad(n))
  end
end

-- Of a damaged one, what its branch says of it is enough: whoever reads another list passes over what is not in `w`.
local function unlist(b, n, pending)
  if not tonumber(n) then
    return
  end
  local row = header(call('HGET', T .. 'P', n)) or {}
  for i = 1, 8 do
    row[i] = type(row[i]) == 'string' and row[i]
  end
  row[1], row[3], row[4], row[5] = pending or row[1], b.run, b.thread, row[5] or b.agent
  call('HDEL', T .. 'P', n)
  for _, name in ipairs(lists(row)) do
    call('ZREM', T .. name, pad(n))
  end
  call('ZREM', T .. 'x', pad(n))
end

-- What a change adds, read from ARGV, judged, and written

local function added()
  local what = {entries = {}, closed = {}, closing = {}, opened = {}, audit = {}, texts = {}}
  for i = 1, number() do
    local entry = {}
    if arg() == '1' then
      entry.id, entry.parent, entry.label = arg(), opt(), opt()
    end
    entry.packed = arg()
    what.entries[i] = entry
  end
  for i = 1, number() do
    what.closed[i] = arg()
    what.closing[what.closed[i]] = true
  end
  for i = 1, number() do
    local row = {arg(), '', '', false, arg(), arg(), opt(), opt(), arg(), opt()}
    what.opened[i] = {row = row, body = arg()}
  end
  for i = 1, number() do
    what.audit[i] = {at = arg(), run = arg(), thread = opt(), pending = opt(), packed = arg()}
  end
  for i = 1, number() do
    what.texts[i] = {digest = arg(), body = arg()}
  end
  return what
end

-- What is in the way of it: what is taken, and its id. Nil if nothing is.
local function taken(id, what)
  local seen = {}
  for _, entry in ipairs(what.entries) do
    if entry.id then
      if seen[entry.id] or call('EXISTS', T .. 'c:' .. entry.id) == 1 then
        return 'checkpoint', entry.id
      end
      seen[entry.id] = true
    end
  end
  seen = {}
  for _, item in ipairs(what.opened) do
    local pending = item.row[1]
    if seen[pending] or (not what.closing[pending] and call('HEXISTS', T .. 'o:' .. id, pending) == 1) then
      return 'pending approval', pending
    end
    seen[pending] = true
  end
  return nil
end

local function add(b, seq, what)
  for i, entry in ipairs(what.entries) do
    call('RPUSH', T .. 'l:' .. b.id, entry.packed)
    if entry.id then
      enroll(b, seq + i, entry.id, entry.parent, entry.label)
    end
  end
  for _, pending in ipairs(what.closed) do
    local n = call('HGET', T .. 'o:' .. b.id, pending)
    if n then
      unlist(b, n, pending)
      call('HDEL', T .. 'o:' .. b.id, pending)
    end
  end
  for _, item in ipairs(what.opened) do
    local row = item.row
    row[2], row[3], row[4] = b.id, b.run, b.thread
    list(row, item.body)
  end
  for _, line in ipairs(what.audit) do
    local n = call('HINCRBY', T .. 'm', 'a', 1)
    call('HSET', T .. 'A', n, line.packed)
    call('ZADD', T .. 'ar:' .. line.run, n, n)
    if line.thread then
      call('ZADD', T .. 'at:' .. line.thread, n, n)
    end
    if line.pending then
      call('ZADD', T .. 'ap:' .. line.pending, n, n)
    end
    -- Times need not grow with the numbers. `back` is how far one was below the latest before it, at most: with it, a range of
    -- times is a range of numbers, and what is in there besides is passed over.
    local known = call('HMGET', T .. 'm', 'latest', 'back')
    if known[1] and tonumber(known[1]) > tonumber(line.at) then
      local back = tonumber(known[1]) - tonumber(line.at)
      if back > tonumber(known[2] or '0') then
        call('HSET', T .. 'm', 'back', string.format('%.17g', back))
      end
      call('ZADD', T .. 'as', known[1], pad(n))
    else
      call('HSET', T .. 'm', 'latest', line.at)
      call('ZADD', T .. 'as', line.at, pad(n))
    end
  end
  -- One that is there stays as it is: its key says what it must be.
  for _, text in ipairs(what.texts) do
    call('SET', T .. 't:' .. text.digest, text.body, 'NX')
  end
end
