-- Lines of the audit trail in the order of their numbers, after one, `most` looked at. KEYS: a list of their numbers, or m.
local listed, most, after = arg() == '1', number(), arg()
local since, until_ = opt(), opt()
local numbers = {}
if listed then
  numbers = call('ZRANGEBYSCORE', KEYS[1], '(' .. after, '+inf', 'LIMIT', 0, most)
else
  local low, high = tonumber(after) + 1, tonumber(call('HGET', T .. 'm', 'a') or '0')
  if since then
    local first = call('ZRANGEBYSCORE', T .. 'as', since, '+inf', 'LIMIT', 0, 1)[1]
    low = math.max(low, first and tonumber(first) or high + 1)
  end
  if until_ then
    -- A second more: what is left out must not hang on how a difference was rounded.
    local reach = tonumber(until_) + tonumber(call('HGET', T .. 'm', 'back') or '0') + 1
    local last = call('ZREVRANGEBYSCORE', T .. 'as', string.format('%.17g', reach), '-inf', 'LIMIT', 0, 1)[1]
    high = math.min(high, last and tonumber(last) or 0)
  end
  for n = low, math.min(high, low + most - 1) do
    numbers[#numbers + 1] = string.format('%d', n)
  end
end
if #numbers == 0 then
  return {OP, 'ok', numbers, {}}
end
return {OP, 'ok', numbers, call('HMGET', T .. 'A', unpack(numbers))}
