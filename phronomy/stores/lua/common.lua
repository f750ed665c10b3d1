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

-- The branch of this id, nil if there is none. What it does not have is false.
local function branch(id)
  local values = call('HMGET', T .. 'b:' .. id, unpack(FIELDS))
  if not values[1] then
    return nil
  end
  local b = {id = id}
  for i = 1, #FIELDS do
    b[FIELDS[i]] = values[i]
  end
  return b
end

local function shown(b)
  local values = {b.id}
  for i = 1, #FIELDS - 1 do
    values[i + 1] = b[FIELDS[i]]
  end
  return values
end

-- The first line of an entry, a pending approval or a line of audit, as a table.
local function header(packed)
  local line = packed:sub(1, packed:find('\n', 1, true) - 1)
  return line ~= '' and cjson.decode(line)
end

-- Whether an entry is a root row: its path is empty, and it has an id.
local function is_root(head)
  return head and head[1] == '' and head[2] ~= cjson.null
end

local function text_of(value)
  return value ~= cjson.null and value
end
