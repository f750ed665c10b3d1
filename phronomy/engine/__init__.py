"""The engine: the loop that drives a run, and the work of each move."""
