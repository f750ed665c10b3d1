"""Agents: their configuration, and the ways between them."""
