-- What every script begins with. Redis runs a script alone and as a whole: each judges first and writes after, since what it has
-- written is not undone if it fails.
--
-- ARGV[1] is what every key of the tenant begins with, ARGV[2] the number of the call: it is the first thing in the answer, and a
-- change notes it, so that a change that arrives a second time, because its answer was lost, is not made again.
-- Text that may be missing comes with "=" before it, and is "" if it is. Times are text and are kept as they came.
--
-- KEYS holds the keys that are known beforehand. The others hang on what is found, and are made here; all of a tenant are of one
-- slot, so that a cluster has them on one node.
--
-- The keys, after the tenant's beginning ("member" is number and id of a branch, in the order of the numbers):
--   m                     hash: the counters of branches (b), pending approvals (p) and lines of audit (a)
--   b:<branch>            hash: the branch
--   l:<branch>            list: its log
--   r:<branch>            zset: its root checkpoints, by their number in the log
--   o:<branch>            hash: the numbers of what is pending in it, by pending id
--   c:<checkpoint>        the branch of a root checkpoint
--   k:<checkpoint>        set: the root checkpoints that name it as their parent
--   B, R:<run>, H:<thread>    zset: branches, by number
--   F:<branch>            zset: the members that go on from it
--   ho:<thread>, he:<thread>, run, end, una, hand
--                         zset: the members that are open or ended in a thread, running (by the end of the lease), ended (by the
--                         last change), the branches with entries that are not announced, and those with entries left for a worker
--   L:<label>, LL         zset: root checkpoints of a label, and of any, in the order of their numbers
--   P                     hash: pending approvals, by number
--   w, x, f:<facet>:<value>   zset: numbers of all, of those that expire (by when), and those of a facet, by when they were made
--   A                     hash: the audit trail, by number
--   as, ar:<run>, at:<thread>, ap:<pending>   zset: its numbers, by time (the latest up to there), run, thread and pending id
--   t:<digest>            a text that is kept once, by its SHA-256
--   d:<kind>, D:<kind>    zset: the keys of documents, all at 0, so in their order; hash: the documents, by key
--   dx                    zset: the documents that expire, by when
local T, OP = ARGV[1], ARGV[2]
local call = redis.call
local at = 2

local function arg()
  at = at + 1
  return ARGV[at]
end

local function opt()
  local text = arg()
  return text ~= '' and text:sub(2)
end

local function number()
  return tonumber(arg())
end

local function pad(n)
  return string.format('%016d', n)
end

local FIELDS = {
  'n', 'run', 'thread', 'agent', 'label', 'pb', 'ps', 'seq', 'head', 'st', 'own', 'fence', 'until', 'made', 'at', 'ann', 'handed',
  'ops'
}

-- The numbers among them. A branch always has the first seven.
local NUMBERS = {'n', 'ps', 'seq', 'fence', 'until', 'made', 'at', 'ann', 'handed'}

-- The branch of this id, nil if there is none. A missing value is false. A branch is `damaged` if something else stands under its
-- key, or in the place of its numbers: a script that reckons with these would stop half way.
local function branch(id)
  local values = redis.pcall('HMGET', T .. 'b:' .. id, unpack(FIELDS))
  local b, there = {id = id, damaged = values.err ~= nil}, values.err ~= nil
  for i = 1, #FIELDS do
    b[FIELDS[i]] = values[i] or false
    there = there or values[i]
  end
  if not there then
    return nil
  end
  for i, name in ipairs(NUMBERS) do
    b.damaged = b.damaged or not tonumber(b[name] or (i <= 7 and '' or '0'))
  end
  b.damaged = b.damaged or not (b.run and b.agent and b.st)
  return b
end

local function shown(b)
  local values = {b.id}
  for i = 1, #FIELDS - 1 do
    values[i + 1] = b[FIELDS[i]] or false
  end
  return values
end

-- The branch that stands in a list under this number, as far as it can be read: what is damaged is for the reader of the list to say.
local function listed(id, n)
  local b = branch(id) or {id = id}
  b.n = string.format('%.0f', tonumber(n))
  return b
end

-- The first line of an entry, a pending approval or a line of audit, as a table. False if there is none, or it is damaged.
local function header(packed)
  local last = type(packed) == 'string' and packed:find('\n', 1, true)
  if not last or last == 1 then
    return false
  end
  local whole, head = pcall(cjson.decode, packed:sub(1, last - 1))
  return whole and type(head) == 'table' and head
end

-- Whether an entry is a root row: its path is empty, and it has an id.
local function is_root(head)
  return head and head[1] == '' and head[2] ~= cjson.null
end

local function text_of(value)
  return value ~= cjson.null and value
end
