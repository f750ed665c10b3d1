"""The methods that agents and graphs share: opening a run, deciding, driving, streaming, recovery, labels and restore."""
