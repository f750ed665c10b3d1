"""What everything stands on: JSON as text, ids, checks of options, and how errors quote and spell names."""
