-- What every script of documents has besides. A document is kept as three lines: its last versions, the present one at the end; its
-- time, "" for none; and its text, which may have more lines.

-- Of a document as it is kept, its version and the line of versions; false if there is none, or its time is over. A damaged one
-- has a version that no writer has seen.
local function live(packed, now)
  if not packed then
    return false
  end
  local versions, expires = packed:match('^([^\n]*)\n([^\n]*)\n')
  if tonumber(expires or '') and tonumber(expires) <= tonumber(now) then
    return false
  end
  return versions and versions:match('%S+$') or 'damaged', versions or ''
end

-- Where it stands in the list of times: the length tells where the kind ends and the key begins, whatever they hold.
local function timed(kind, key)
  return #kind .. ':' .. kind .. key
end

local function erase(kind, key)
  call('HDEL', T .. 'D:' .. kind, key)
  call('ZREM', T .. 'd:' .. kind, key)
  call('ZREM', T .. 'dx', timed(kind, key))
end
