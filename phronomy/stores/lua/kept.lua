-- A text that is kept once, false if there is none. KEYS: its t.
local text = redis.pcall('GET', KEYS[1])
return {OP, 'ok', type(text) == 'string' and text}
