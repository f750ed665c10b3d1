"""A fake Microsoft Teams: `FakeTeams`, its keys and tokens, and what its clients make of cards."""

from phronomy.testing.chat.teams.fake import FakeTeams
from phronomy.testing.chat.teams.service import APP_ID, APP_PASSWORD, TENANT

__all__ = ["APP_ID", "APP_PASSWORD", "TENANT", "FakeTeams"]
