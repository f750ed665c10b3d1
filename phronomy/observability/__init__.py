"""Observing runs: events, hooks, announcements, OpenTelemetry, timelines and drawings."""
