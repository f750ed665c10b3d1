-- Pending approvals, or how many. KEYS: w, x, then the lists of the facets asked for.
--
-- The shortest list is walked by rank, so that a place in it is found without passing over what is before it; the others are asked
-- about each. The answer ends after `most` are found or `budget` are looked at, and then says where to go on.
local counting, newest, most, budget = arg() == '1', arg() == '1', number(), number()
local since, until_, expired = opt(), opt(), opt()
local after_score, after_member = opt(), arg()

local key, size = KEYS[1], nil
for i = 3, #KEYS do
  local count = call('ZCARD', KEYS[i])
  if not size or count < size then
    key, size = KEYS[i], count
  end
end
size = size or call('ZCARD', key)
local found, count = {}, 0

local function wanted(member)
  -- A damaged one that was closed may be left in the list of a facet that nobody could read.
  if key ~= KEYS[1] and not call('ZSCORE', KEYS[1], member) then
    return false
  end
  for i = 3, #KEYS do
    if KEYS[i] ~= key and not call('ZSCORE', KEYS[i], member) then
      return false
    end
  end
  if expired then
    local expires = call('ZSCORE', KEYS[2], member)
    return expires and tonumber(expires) <= tonumber(expired)
  end
  return true
end

local function row(member, score)
  local n = string.format('%d', tonumber(member))
  local packed = call('HGET', T .. 'P', n) or ''
  -- One that is damaged has no branch that could be found: it is for the reader to say so, and the others are given.
  local line = header(packed)
  local branch = line and type(line[2]) == 'string' and line[2]
  local head = branch and redis.pcall('HGET', T .. 'b:' .. branch, 'head')
  return {n, score, packed, type(head) == 'string' and head}
end

-- A few have expired: take those, and put them in order.
local overdue = expired and call('ZCOUNT', KEYS[2], '-inf', expired)
if overdue and overdue < size and overdue <= 1000 then
  key = KEYS[2]
  local places = {}
  for _, member in ipairs(call('ZRANGEBYSCORE', KEYS[2], '-inf', expired)) do
    local text = call('ZSCORE', KEYS[1], member)
    local score = tonumber(text)
    local further = not after_score
      or (newest and (score < tonumber(after_score) or (score == tonumber(after_score) and member < after_member)))
      or (not newest and (score > tonumber(after_score) or (score == tonumber(after_score) and member > after_member)))
    local inside = (not since or score >= tonumber(since)) and (not until_ or score <= tonumber(until_))
    if further and inside and wanted(member) then
      places[#places + 1] = {score, member, text}
    end
  end
  if counting then
    return {OP, 'ok', #places, '', ''}
  end
  table.sort(places, function(a, b)
    if newest then
      a, b = b, a
    end
    return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2])
  end)
  for i = 1, math.min(most, #places) do
    found[i] = row(places[i][2], places[i][3])
  end
  local last = #places > most and places[most]
  return {OP, 'ok', found, last and last[3] or '', last and last[2] or ''}
end

-- How many of the list come before this member, where it is or would be.
local function rank(score, member, itself)
  local low = call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = call('ZRANGE', key, middle, middle)[1]
    if there < member or (itself and there == member) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local low = since and call('ZCOUNT', key, '-inf', '(' .. since) or 0
local high = until_ and call('ZCOUNT', key, '-inf', until_) or size
if after_score and newest then
  high = math.min(high, rank(after_score, after_member, false))
elseif after_score then
  low = math.max(low, rank(after_score, after_member, true))
end
if counting and #KEYS <= 3 and not expired then
  return {OP, 'ok', math.max(0, high - low), '', ''}
end
local looked = 0
while low < high do
  local few = math.min(200, high - low)
  local part
  if newest then
    part = call('ZRANGE', key, high - few, high - 1, 'WITHSCORES')
    high = high - few
  else
    part = call('ZRANGE', key, low, low + few - 1, 'WITHSCORES')
    low = low + few
  end
  for i = 1, few do
    local place = newest and few + 1 - i or i
    local member = part[2 * place - 1]
    looked = looked + 1
    if wanted(member) then
      count = count + 1
      if not counting then
        found[count] = row(member, part[2 * place])
      end
    end
    local rest = i < few or low < high
    if rest and (count == most or looked == budget) then
      return {OP, 'ok', counting and count or found, part[2 * place], member}
    end
  end
end
return {OP, 'ok', counting and count or found, '', ''}
