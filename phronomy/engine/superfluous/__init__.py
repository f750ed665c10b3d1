"""Calls that others of their wave make superfluous."""
