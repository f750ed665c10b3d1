"""Threads and tasks side by side: running a body, leaving it, and passing on the pieces that it gives."""
