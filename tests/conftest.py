"""Hypothesis profiles: `dev` searches anew at each run, `ci` repeats the same examples at any speed of machine."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("dev", deadline=None, max_examples=100)
settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=200, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")
