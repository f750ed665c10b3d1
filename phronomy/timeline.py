"""The timeline: what happened in a run, read from its checkpoints or recorded while the run goes on."""

from __future__ import annotations

from phronomy.observability.timeline import Timeline, TimelineRecorder, timeline
from phronomy.observability.timeline_entries import EntryType, TimelineEntry

__all__ = ["EntryType", "Timeline", "TimelineEntry", "TimelineRecorder", "timeline"]
