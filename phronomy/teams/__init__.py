"""Teams: agents that work together."""
