"""Tokens for links and buttons: signed texts that say which request somebody was shown, and for what."""

from phronomy.tokens.tokens import Token, Tokens

__all__ = ["Token", "Tokens"]
