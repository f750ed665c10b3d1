-- A text that is kept once, false if there is none. KEYS: its t.
return {OP, 'ok', call('GET', KEYS[1])}
