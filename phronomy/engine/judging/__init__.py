"""What becomes of a call before it runs: the verdict on it, what guardrails say, and what handlers and humans decide."""
