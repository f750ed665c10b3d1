"""Signing in with an OpenID Connect provider.

It follows OpenID Connect Core 1.0 (https://openid.net/specs/openid-connect-core-1_0.html), the advice on OAuth 2.0 security (RFC 9700),
and the `iss` of answers (RFC 9207).
"""
