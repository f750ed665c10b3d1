-- Root checkpoints in the order of their numbers, after one, `most` of them; and where to go on. KEYS: the list of branches to walk
-- through, or that of a label.
local how, most, after, place = arg(), number(), arg(), arg()
local run, thread, agent = opt(), opt(), opt()
local found, looked = {}, 0

local function fits(b)
  return (not run or b.run == run) and (not thread or b.thread == thread) and (not agent or b.agent == agent)
end

local function show(b, seq)
  local packed = call('LINDEX', T .. 'l:' .. b.id, tonumber(seq) - tonumber(b.ps) - 1)
  found[#found + 1] = {b.n, seq, b.id, b.run, b.thread, b.agent, packed}
end

if how == 'label' then
  local first = after == '' and '-' or '(' .. pad(after) .. pad(place) .. '\255'
  local members = call('ZRANGEBYLEX', KEYS[1], first, '+', 'LIMIT', 0, most)
  for _, member in ipairs(members) do
    local b = branch(call('GET', T .. 'c:' .. member:sub(33)))
    if fits(b) then
      show(b, member:sub(17, 32))
    end
  end
  local last = #members == most and members[most]
  return {OP, 'ok', found, last and last:sub(1, 16) or '', last and last:sub(17, 32) or ''}
end

local from = after == '' and '-inf' or after
for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[1], from, '+inf', 'LIMIT', 0, most + 1)) do
  local b = branch(id)
  if fits(b) then
    local first = b.n == after and '(' .. place or '-inf'
    local rows = call('ZRANGEBYSCORE', T .. 'r:' .. id, first, '+inf', 'WITHSCORES', 'LIMIT', 0, most - #found)
    for i = 2, #rows, 2 do
      show(b, rows[i])
      if #found == most then
        return {OP, 'ok', found, b.n, rows[i]}
      end
    end
  end
  looked = looked + (b.n == after and 0 or 1)
  if looked == most then
    return {OP, 'ok', found, b.n, b.seq}
  end
end
return {OP, 'ok', found, '', ''}
