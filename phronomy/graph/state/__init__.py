"""The state of a graph: channels, their values, and how updates are folded in."""
