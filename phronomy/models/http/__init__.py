"""Calling a provider over HTTP: clients, requests, and server-sent events."""
