-- A document as it is kept, false if there is none. KEYS: the D of its kind.
local key, now = arg(), arg()
local packed = call('HGET', KEYS[1], key)
return {OP, 'ok', live(packed, now) and packed}
