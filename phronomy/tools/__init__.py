"""Tools: what a model may call, how its arguments are checked, and how its result is told."""
