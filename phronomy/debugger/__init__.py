"""The debugger: one run, taken from stop to stop."""
