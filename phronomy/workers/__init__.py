"""Workers: processes that carry out decisions and recover runs, for agents whose requests are decided elsewhere."""

from phronomy.workers.health import Health, SetAside
from phronomy.workers.worker import Worker

__all__ = ["Health", "SetAside", "Worker"]
