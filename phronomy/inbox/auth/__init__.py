"""Who comes into the inbox: sessions, tokens, proxies and ways to sign in."""
