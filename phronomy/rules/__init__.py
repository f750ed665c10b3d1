"""What follows from a record: the moves of an agent's run and what their outcomes make of it. Pure; nothing here acts."""
