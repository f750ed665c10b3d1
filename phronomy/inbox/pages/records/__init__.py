"""The pages of what was: runs and their conversations, what people decided, and the standing grants."""
