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
if b.damaged then
  return {OP, 'damaged', b.id}
end
upto = tonumber(b.seq)
if checkpoint then
  local place = call('ZSCORE', T .. 'r:' .. id, checkpoint)
  if not place then
    return {OP, 'none'}
  end
  local after = call('ZRANGEBYSCORE', T .. 'r:' .. id, '(' .. place, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  upto = after[2] and tonumber(after[2]) - 1 or upto
end
-- Of each log what lies before the place where the next one left it, and no more.
local logs, line, seen = {}, b, {}
while line do
  local first = tonumber(line.ps or '') or upto
  local log = upto > first and redis.pcall('LRANGE', T .. 'l:' .. line.id, 0, upto - first - 1) or {}
  if line.damaged or seen[line.id] or log.err then  -- a damaged one may name itself
    return {OP, 'damaged', line.id}
  end
  seen[line.id] = true
  logs[#logs + 1] = {line.id, line.ps, log}
  upto = math.min(upto, first)
  line = line.pb and branch(line.pb)
end
return {OP, 'ok', shown(b), logs}
