"""The stored records: messages, calls, decisions, checkpoints and their chain.

A record is immutable, and does nothing.
"""
