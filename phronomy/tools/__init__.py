"""Tools: functions that a model may call, with the checks of their arguments and the form of their results."""
