"""Finding what a caller means: the checkpoint, the branch, what was decided about it, and what has changed since."""
