"""Agents: their configuration, and the handoffs between them."""
