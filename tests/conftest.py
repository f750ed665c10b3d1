"""Hypothesis profiles: `dev` searches anew at each run, `ci` repeats the same examples at any speed of machine. What was counted."""

import os
from typing import Any

from hypothesis import HealthCheck, settings

settings.register_profile("dev", deadline=None, max_examples=100)
settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=200, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the tests counted: kills, faults, races."""
    told = [
        text for each in terminalreporter.getreports("passed") for name, text in each.user_properties if name == "told"
    ]
    if told:
        terminalreporter.section("counted")
        terminalreporter.write_line("\n".join(told))
