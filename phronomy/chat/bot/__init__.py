"""The bot: what people write to it begins runs of an agent, and the answers are said in the same thread."""
