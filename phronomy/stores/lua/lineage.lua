-- The branch, and the logs that lead to a checkpoint or to its end, its own first. KEYS: the checkpoint's c, or the branch's b.
local checkpoint, id = opt(), opt()
local upto
if checkpoint then
  id = call('GET', T .. 'c:' .. checkpoint)
end
local b = id and branch(id)
if not b then
  return {OP, 'none'}
end
upto = tonumber(b.seq)
if checkpoint then
  local place = call('ZSCORE', T .. 'r:' .. id, checkpoint)
  local after = call('ZRANGEBYSCORE', T .. 'r:' .. id, '(' .. place, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  upto = after[2] and tonumber(after[2]) - 1 or upto
end
-- Of each log what lies before the place where the next one left it, and no more.
local logs, line = {}, b
while line do
  local first = tonumber(line.ps)
  logs[#logs + 1] = {line.id, line.ps, upto > first and call('LRANGE', T .. 'l:' .. line.id, 0, upto - first - 1) or {}}
  upto = math.min(upto, first)
  line = line.pb and branch(line.pb)
end
return {OP, 'ok', shown(b), logs}
