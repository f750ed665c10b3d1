"""Records as plain JSON data, to send them to programs that watch runs from outside, such as a page in a browser."""

from __future__ import annotations

from phronomy.runs.wire import VERSION, to_wire

__all__ = ["VERSION", "to_wire"]
