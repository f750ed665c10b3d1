"""Workers: processes that carry out decisions and recover runs, for agents whose requests are decided elsewhere."""

from typing import TYPE_CHECKING

from phronomy.foundation import lazy_names
from phronomy.workers.health import Health, SetAside
from phronomy.workers.worker import Worker

__all__ = ["Health", "SetAside", "Worker"]

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        raise lazy_names.unknown(__name__, name)
