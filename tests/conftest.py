"""Hypothesis profiles: `dev` searches anew at each run, `ci` repeats the same examples at any speed of machine. What was counted.

And what most tests are run with: both drivers, and the stores that need no server.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, STORES, Driver, open_kind
from hypothesis import HealthCheck, settings

from phronomy.models import litellm
from phronomy.stores.base import Store

settings.register_profile("dev", deadline=None, max_examples=100)
settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=200, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each of the two drivers."""
    found: Driver = request.param
    return found


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that needs no server."""
    with open_kind(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_loads_between_tests() -> Iterator[None]:
    """What a test has begun to import in the background is there when it ends.

    The filters of warnings belong to the process: an import that goes on while they are set anew for the next test may
    fail of a warning that neither of the two tests would have heard.
    """
    yield
    litellm._SOON.wait()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the tests counted: kills, faults, races."""
    told = [
        text for each in terminalreporter.getreports("passed") for name, text in each.user_properties if name == "told"
    ]
    if told:
        terminalreporter.section("counted")
        terminalreporter.write_line("\n".join(told))
