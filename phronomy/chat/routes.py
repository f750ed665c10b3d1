"""Routes: who is asked where. A place is the name of a channel, a colon and an id of its platform, such as `slack:C0123456789`.

`approvers` stands for the people whose turn it is, wherever each of them can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from phronomy.errors import ConfigurationError
from phronomy.foundation.quoting import quoted, quoted_id

if TYPE_CHECKING:
    from phronomy.observability.events import RequestChanged

Route: TypeAlias = "str | Sequence[str] | Callable[[RequestChanged], str | Iterable[str] | None]"
"""Who is asked where: places such as `"slack:C0123456789"`, or a function of the event that names them."""

APPROVERS: Final = "approvers"
"""The place that stands for the people whose turn it is."""

_LONGEST = 300
"""Characters of the id of a place."""


def check_route(route: Route | None, channels: Collection[str]) -> None:
    """Refuse a route whose places are in no channel of these. What a function will name is not known yet.

    Raises `ConfigurationError`.
    """
    if route is None or callable(route):
        return
    for at in places_in(route):
        if at == APPROVERS:
            continue
        channel = at.partition(":")[0]
        if channel not in channels:
            raise ConfigurationError(
                f"route has the place {quoted_id(at)}, and there is no channel {quoted_id(channel)}: the channels are"
                f" {', '.join(sorted(channels))}"
            )


def places_in(named: str | Iterable[str] | None) -> list[str]:
    """The places that a route names, each once. Raises `ConfigurationError` for what cannot be one."""
    if named is not None and not isinstance(named, Iterable):
        raise ConfigurationError(f"route gives a place, a list of places or None, not {quoted(named)}")
    found = [named] if isinstance(named, str) else list(named or ())
    for at in found:
        if at == APPROVERS:
            continue
        channel, colon, to = at.partition(":") if isinstance(at, str) else ("", "", "")
        if not channel or not colon or not 0 < len(to) <= _LONGEST:
            given = quoted_id(at) if isinstance(at, str) else quoted(at)
            raise ConfigurationError(
                f"a place of a route is a channel, a colon and an id, such as slack:C0123456789, not {given}"
            )
    return list(dict.fromkeys(found))
