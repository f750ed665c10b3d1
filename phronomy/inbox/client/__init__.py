"""Clients of the inbox's API, for programs: one that blocks, and one for an event loop."""
