"""The stops of a run for a human: breakpoints, questions from inside a body, and the conditions of breakpoints."""
