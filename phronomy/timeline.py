"""The timeline: what happened in a run, read off its chain of checkpoints, or told while it happens."""

from __future__ import annotations

from phronomy.observability.timeline import Timeline, TimelineRecorder, timeline
from phronomy.observability.timeline_entries import EntryType, TimelineEntry

__all__ = ["EntryType", "Timeline", "TimelineEntry", "TimelineRecorder", "timeline"]
