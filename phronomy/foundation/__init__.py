"""The base of all rooms: JSON as text, ids, checks of options, and the quoting and spelling of names in errors."""
