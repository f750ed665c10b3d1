"""The pages on which somebody reads a request and decides it, and what they are told afterwards."""
