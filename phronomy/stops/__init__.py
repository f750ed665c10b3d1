"""Where a run stops for somebody: breakpoints, questions asked from inside a body, and the conditions of both."""
