"""The HTTP API of the inbox: its routes, its models and its description."""
