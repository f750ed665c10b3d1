"""Workers: processes that carry out decisions and recover runs, for agents whose requests are decided elsewhere."""

from phronomy.workers.worker import Health, SetAside, Worker

__all__ = ["Health", "SetAside", "Worker"]
