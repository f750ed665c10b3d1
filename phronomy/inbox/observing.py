"""What is told of each request of the inbox: a line of the access log with who sent it, and how long it took for OpenTelemetry.

Neither has anything that was said, nor a path: a token or an id in it would be there for all who read logs.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from phronomy.foundation.quoting import quoted_id

if TYPE_CHECKING:
    from starlette.types import Scope

    from phronomy.inbox.visit import Visit
    from phronomy.observability.otel_inbox import InboxMeters

_log = logging.getLogger("phronomy.inbox")


def answered(scope: Scope, started: float, meters: InboxMeters | None) -> None:
    """Note that a request was answered; `started` is when it came, by `time.perf_counter`."""
    seconds = time.perf_counter() - started
    visit: Visit | None = scope.get("phronomy.visit")
    status, problem = scope.get("phronomy.status"), scope.get("phronomy.problem")
    place = visit.place if visit is not None else None
    if meters is not None:
        meters.answered(_method(scope["method"]), place, status, scope.get("scheme", "http"), problem, seconds)
    if not _log.isEnabledFor(logging.INFO):
        return
    identity = visit.maybe if visit is not None else None
    who = "nobody" if identity is None else f"{quoted_id(identity.principal.id)} by {quoted_id(identity.via)}"
    about = f" about {', '.join(visit.about)}" if visit is not None and visit.about else ""
    problem = f" ({problem}, id {scope.get('phronomy.log_id')})" if problem is not None else ""
    where = "(no route)" if place is None else place
    _log.info("%s %s %s%s, %s%s, %.0f ms", _method(scope["method"]), where, status, problem, who, about, seconds * 1000)


def _method(method: str) -> str:
    """The method, if it is one of the known: a client may send any word."""
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "_OTHER"
