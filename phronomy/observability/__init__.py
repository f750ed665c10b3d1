"""What tells of a run: events, hooks, announcements, OpenTelemetry, timelines and drawings."""
