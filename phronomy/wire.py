"""What is sent to whoever looks at runs from outside, a page in a browser say: plain JSON, without JSON as text inside it."""

from __future__ import annotations

from phronomy.runs.wire import VERSION, to_wire

__all__ = ["VERSION", "to_wire"]
