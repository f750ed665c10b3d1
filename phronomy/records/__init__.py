"""What is stored: messages, calls, decisions, checkpoints and the chain of them. A record is immutable, and none of them acts."""
