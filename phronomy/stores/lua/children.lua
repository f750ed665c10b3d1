-- The root checkpoints that go on from one, each with its place: number of the branch, number in the log. KEYS: the checkpoint's c.
local checkpoint = arg()
local found = {}

local function find(id)
  local of = call('GET', T .. 'c:' .. id)
  if of then
    found[#found + 1] = {call('ZSCORE', T .. 'B', of) or '0', call('ZSCORE', T .. 'r:' .. of, id) or '0', id}
  end
end

for _, id in ipairs(call('SMEMBERS', T .. 'k:' .. checkpoint)) do
  find(id)
end
local id = call('GET', T .. 'c:' .. checkpoint)
if id then
  local place = call('ZSCORE', T .. 'r:' .. id, checkpoint)
  local after = call('ZRANGEBYSCORE', T .. 'r:' .. id, '(' .. place, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if after[1] then
    local b = branch(id)
    local row = b and not b.damaged and header(call('LINDEX', T .. 'l:' .. id, tonumber(after[2]) - tonumber(b.ps) - 1))
    if row and not text_of(row[3]) then
      find(after[1])
    end
  end
end
return {OP, 'ok', found}
