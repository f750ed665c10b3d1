"""Applying a JSON Schema that somebody else wrote: within a budget, and with nothing fetched."""
