-- A change to a branch: read from ARGV, judged, and written.
local function change(now)
  local c = {now = now, id = arg(), seq = arg(), most = number(), claim = arg(), owner = arg(), fence = arg()}
  c.take, c.lease, c.release, c.head, c.status, c.announce = opt(), opt(), arg() == '1', opt(), opt(), arg() == '1'
  c.what = added()
  return c
end

-- The branch as it was after the change: what others wrote since is still to be read.
local function written(b, c)
  b.seq = string.format('%.0f', tonumber(c.seq) + #c.what.entries)
  return shown(b)
end

-- Why the branch does not take the change, and what goes with that. Nil if it does.
local function refused(b, c)
  -- In the order of `grown`: lost, behind, held, and an id that is taken last.
  if c.claim == 'other own' or (c.claim == 'own' and (c.fence ~= b.fence or c.owner ~= b.own)) then
    return 'lost'
  end
  -- A note is for who holds the branch now. The empty text is nobody: the branch is free, or its lease is over.
  local there = held(b, c.now) and b.own or ''
  local gone = (c.claim == 'holder' or c.claim == 'note') and (c.fence ~= b.fence or c.owner ~= there)
  if c.seq ~= b.seq or c.claim == 'other holder' or c.claim == 'other note' or gone then
    return 'behind', c.id
  end
  if c.take and held(b, c.now) then
    return 'held', shown(b)
  end
  if tonumber(b.seq) + #c.what.entries >= c.most then
    return 'full'
  end
  local kind, id = taken(c.id, c.what)
  if kind then
    return 'taken', kind, id
  end
  return nil
end

-- Write a change that was judged. Nothing in here can fail: what a script has written is not undone.
local function write(b, c)
  local before, was = tonumber(b.seq), b.st
  if c.take then
    b.own, b.fence = c.take, string.format('%.0f', tonumber(b.fence) + 1)
  end
  if c.lease then
    b['until'] = c.lease
  end
  if c.release then
    b.own, b['until'] = false, '0.0'
  end
  if c.announce and not b.ann then
    b.ann = b.seq
  end
  if tonumber(b.made) == 0 then
    b.made = c.now
  end
  b.seq = string.format('%.0f', before + #c.what.entries)
  -- The first note that was left counts, until a root checkpoint takes all of them in.
  if c.claim == 'holder' and not b.handed then
    b.handed = string.format('%.0f', before + 1)
    call('ZADD', T .. 'hand', b.n, b.id)
  elseif b.handed and c.head then
    b.handed = false
    call('HDEL', T .. 'b:' .. b.id, 'handed')
    call('ZREM', T .. 'hand', b.id)
  end
  -- Never back, whatever the writer's clock says: the order of ends is read off it.
  if tonumber(c.now) > tonumber(b.at) then
    b.at = c.now
  end
  b.head, b.st, b.ops = c.head or b.head, c.status or b.st, note(b.ops)
  save(b, was)
  add(b, before, c.what)
  return shown(b)
end
