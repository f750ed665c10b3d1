"""The log of a branch: each row holds what is new in a checkpoint since its parent."""
