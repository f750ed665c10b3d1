"""What the lists of this room have in common: filters that stand in the address, and days as people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any, ClassVar
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, field_validator

ROWS = 50
"""Rows of a page."""


class Listed(BaseModel):
    """The filters of a list, as the address has them. What is empty is not there. `after` is the place where a page begins.

    An unknown filter is refused: who is shown more than they asked for takes it for what they asked for.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    after: str | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _not_empty(cls, value: Any) -> Any:
        return (value.strip() or None) if isinstance(value, str) else value

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set, each with its value."""
        return {
            name: str(value)
            for name, value in self.model_dump(exclude={"after"}, mode="json").items()
            if value is not None
        }

    def address(self, path: str, **changes: str | None) -> str:
        """The address of the list with these changes, from its first page on unless they say otherwise."""
        values = {name: value for name, value in {**self.filters, **changes}.items() if value is not None}
        return f"{path}?{urlencode(values)}" if values else path

    def without(self, path: str) -> dict[str, str]:
        """For each filter that is set, the address of the list without it."""
        return {name: self.address(path, **{name: None}) for name in self.filters}


def begin_of(day: date | None) -> float | None:
    """The first moment of a day, in UTC, as seconds since the epoch."""
    return None if day is None else datetime.combine(day, time.min, UTC).timestamp()


def end_of(day: date | None) -> datetime | None:
    """The last moment of a day, in UTC."""
    return None if day is None else datetime.combine(day, time.max, UTC)
