"""Doing it: the loop that drives a run, and what it performs."""
