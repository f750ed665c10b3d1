"""The debugger: stepping through one run, from stop to stop."""
