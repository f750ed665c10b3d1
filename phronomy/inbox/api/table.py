"""The routes of the HTTP API, each with its scope and its models."""

from __future__ import annotations

from typing import Final

from phronomy.inbox.api.audit import AUDIT
from phronomy.inbox.api.decisions import DECISIONS
from phronomy.inbox.api.events import EVENTS
from phronomy.inbox.api.grants import GRANTS
from phronomy.inbox.api.health import HEALTH
from phronomy.inbox.api.me import ME
from phronomy.inbox.api.openapi import described_by
from phronomy.inbox.api.operations import OPERATIONS
from phronomy.inbox.api.requests import REQUESTS
from phronomy.inbox.api.runs import RUNS
from phronomy.inbox.api.versions import VERSIONS
from phronomy.inbox.routes import Route

_DESCRIBED: Final = (*HEALTH, *ME, *REQUESTS, *DECISIONS, *AUDIT, *GRANTS, *RUNS, *VERSIONS, *OPERATIONS, *EVENTS)

API: Final[tuple[Route, ...]] = (*_DESCRIBED, described_by(_DESCRIBED))
