-- Root checkpoints in the order of their numbers, after one, `most` of them; and where to go on. KEYS: the list of branches to walk
-- through, or that of a label.
local how, most, after, place = arg(), number(), arg(), arg()
local run, thread, agent = opt(), opt(), opt()
local found, looked = {}, 0

local function fits(b)
  return (not run or b.run == run) and (not thread or b.thread == thread) and (not agent or b.agent == agent)
end

-- Of a damaged branch, or log, it is shown which checkpoint there was, and nothing of it.
local function show(b, id, seq)
  local first = tonumber(b.ps or '')
  local packed = first and redis.pcall('LINDEX', T .. 'l:' .. b.id, tonumber(seq) - first - 1)
  packed = type(packed) == 'string' and packed
  found[#found + 1] = {b.n, seq, b.id, b.run or false, b.thread or false, b.agent or false, id, packed}
end

if how == 'label' then
  local first = after == '' and '-' or '(' .. pad(after) .. pad(place) .. '\255'
  local members = call('ZRANGEBYLEX', KEYS[1], first, '+', 'LIMIT', 0, most)
  for _, member in ipairs(members) do
    local of = call('GET', T .. 'c:' .. member:sub(33))
    local b = of and listed(of, member:sub(1, 16))
    if b and fits(b) then
      show(b, member:sub(33), member:sub(17, 32))
    end
  end
  local last = #members == most and members[most]
  return {OP, 'ok', found, last and last:sub(1, 16) or '', last and last:sub(17, 32) or ''}
end

local from = after == '' and '-inf' or after
local places = call('ZRANGEBYSCORE', KEYS[1], from, '+inf', 'WITHSCORES', 'LIMIT', 0, most + 1)
for i = 1, #places, 2 do
  local id = places[i]
  local b = listed(id, places[i + 1])
  if fits(b) then
    local first = b.n == after and '(' .. place or '-inf'
    local rows = redis.pcall('ZRANGEBYSCORE', T .. 'r:' .. id, first, '+inf', 'WITHSCORES', 'LIMIT', 0, most - #found)
    for j = 1, #rows, 2 do
      show(b, rows[j], rows[j + 1])
      if #found == most then
        return {OP, 'ok', found, b.n, rows[j + 1]}
      end
    end
  end
  looked = looked + (b.n == after and 0 or 1)
  if looked == most then
    return {OP, 'ok', found, b.n, '+inf'}
  end
end
return {OP, 'ok', found, '', ''}
