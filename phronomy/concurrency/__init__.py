"""Threads and tasks in parallel: running a body, leaving it, and passing on the pieces that it yields."""
