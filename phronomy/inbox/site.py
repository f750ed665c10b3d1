"""What an inbox was made with: its store, its agents, who may come in, and the secret that its processes share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_async, is_series, texts_in
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted
from phronomy.inbox import security
from phronomy.inbox.auth.api_tokens import ApiTokens
from phronomy.inbox.auth.identity import DEFAULT_SCOPES, Auth, Scope, checked_scopes
from phronomy.inbox.auth.keys import server_key
from phronomy.inbox.auth.limits import Limits
from phronomy.inbox.auth.returning import check_app_url
from phronomy.inbox.auth.sessions import Sessions
from phronomy.inbox.look.looks import Look, look_of
from phronomy.inbox.problems import Problem
from phronomy.records.decisions import PendingApproval
from phronomy.records.principals import Principal
from phronomy.runs.runs import Runs
from phronomy.stores.base import Store
from phronomy.tools.tool import Tool
from phronomy.tools.toolbox import is_same_tool, toolboxes_in

MAX_BODY: Final = 1_048_576
"""The largest body of a request, in bytes, unless it is said otherwise."""

ScopesOf: TypeAlias = Callable[[Principal], Collection[str]]
"""Says what a principal may do in the inbox at all."""

Threads: TypeAlias = Literal["own", "any"]
"""In which conversations somebody may start runs: those in which nobody else has asked for one, or any."""

K = TypeVar("K")

_TENANTS: Final = 1_000
"""So many stores of tenants are kept at hand."""


@dataclass(frozen=True, slots=True)
class SignInLink:
    """A way to sign in, as the sign-in page offers it: "Sign in with {label}", a link to the path `start`."""

    label: str
    start: str


class Site:
    """What handlers know of their inbox. `Inbox` says what each of these is."""

    def __init__(
        self,
        store: Store,
        agents: Runs[Any, Any] | Sequence[Runs[Any, Any]],
        auth: Auth | Sequence[Auth],
        *,
        public_url: str | None,
        login_url: str | None,
        logout_url: str | None,
        title: str,
        logo: str | Path | bytes | None,
        color: str | None,
        scopes: ScopesOf | None,
        trusted_hosts: Collection[str] | None,
        max_body: int,
        sessions: Sessions | None,
        limits: Limits | None,
        threads: Threads,
    ) -> None:
        if not isinstance(store, Store):
            raise ConfigurationError(f"Inbox: store is a store of phronomy's, not {quoted(store)}")
        self.store: Store = store
        self.agents: Mapping[str, Runs[Any, Any]] = _by_name(agents)
        self.auth: Sequence[Auth] = _ways_in(auth, store)
        if threads not in get_args(Threads):
            raise ConfigurationError(f"Inbox: threads is 'own' or 'any', not {quoted(threads)}")
        self.threads: Threads = threads
        self.login_url: str | None = None if login_url is None else check_app_url(login_url, "login_url")
        self.logout_url: str | None = None if logout_url is None else check_app_url(logout_url, "logout_url")
        self.sign_ins: tuple[SignInLink, ...] = ()
        self.title: str = title
        self.look: Look = look_of(logo, color)
        self.origin: str | None = None if public_url is None else security.origin_of(public_url)
        self.prefix: str = "" if public_url is None else security.path_of(public_url)
        self.public_url: str | None = public_url.rstrip("/") if public_url is not None else None
        self.trusted_hosts: frozenset[str] | None = None if trusted_hosts is None else _hosts(trusted_hosts)
        self.max_body: int = max_body
        self.sessions: Sessions = sessions if sessions is not None else Sessions(store)
        if self.sessions.store is not store:  # the directory of another one would say which roles people have
            raise ConfigurationError(
                "Inbox: sessions are of another store: make them with the store object of the Inbox"
            )
        self.limits: Limits = limits if limits is not None else Limits(store)
        self.tokens: ApiTokens = ApiTokens(store, self.limits.failures)
        if scopes is not None and (not callable(scopes) or is_async(scopes)):
            raise ConfigurationError(
                "Inbox: scopes is a plain function of the principal that returns names, such as"
                f" lambda who: {{'read', 'decide'}}, not {quoted(scopes)}"
            )
        self._scopes_of: ScopesOf = scopes if scopes is not None else lambda _: DEFAULT_SCOPES
        self._stores: dict[str, Store] = {store.tenant: store}
        self._key: bytes | None = None
        self._kept: dict[object, Any] = {}

    def store_of(self, tenant: str | None) -> Store:
        """The store of a tenant; None: the inbox's own."""
        if tenant is None or tenant == self.store.tenant:
            return self.store
        found = self._stores.get(tenant)
        if found is None:
            if len(self._stores) >= _TENANTS:
                self._stores = {self.store.tenant: self.store}
            found = self._stores[tenant] = self.store.for_tenant(tenant)
        return found

    def scopes_of(self, principal: Principal) -> frozenset[Scope]:
        """The scopes of a principal here. Raises `Problem` if the function of the inbox returns anything else."""
        try:
            return checked_scopes(self._scopes_of(principal), "Inbox: the names that scopes returns")
        except ConfigurationError as error:
            raise Problem("failed") from error  # nothing that whoever sends the request could correct

    def agent_of(self, store: Store, name: str) -> Runs[Any, Any] | None:
        """The agent of this name, if it is one of this process, and of the tenant of this store."""
        found = self.agents.get(name)
        return found if found is not None and found.store.tenant == store.tenant else None

    def tool_of(self, item: PendingApproval) -> Tool | None:
        """The tool that a request is about, if one of the agents here has it, unchanged; None otherwise.

        Only one that reads its arguments at once: the schema of a server's tool is checked by the worker, which can stop the check.
        """
        for agent in self.agents.values():
            for box in toolboxes_in(agent.spec):
                if box.name != item.agent:
                    continue
                for asked in box.tools.values():
                    for tool in (asked, *asked.fallback):
                        if is_same_tool(tool, item.tool) and not tool.reads_apart:
                            return tool
        return None

    def kept(self, made: Callable[[Site], K]) -> K:
        """The one object of a class that this inbox has in this process, made with the site when it is first asked for."""
        found: K | None = self._kept.get(made)
        if found is None:
            found = self._kept[made] = made(self)
        return found

    async def key(self) -> bytes:
        """The secret of all processes of this inbox, which its store keeps."""
        if self._key is None:
            self._key = await server_key(self.store)
        return self._key


def _hosts(given: Collection[str]) -> frozenset[str]:
    """The host names that an inbox answers to. Raises `ConfigurationError`."""
    names = texts_in(given)
    if names is None or any("/" in each for each in names):
        raise ConfigurationError(
            "Inbox: trusted_hosts is a list of host names, with a port where the address has one, such as"
            f" ['desk.example:8000'], not {quoted(given)}"
        )
    return frozenset(each.lower() for each in names)


def _ways_in(auth: Auth | Sequence[Auth], store: Store) -> tuple[Auth, ...]:
    """The ways to come in, but for API tokens. Raises `ConfigurationError`."""
    given: Sequence[Auth] = tuple(auth) if is_series(auth) else (auth,)  # type: ignore[arg-type, assignment]
    for each in given:
        if isinstance(each, type):
            raise ConfigurationError(f"Inbox: auth is an object, not {quoted(each)}: write {each.__name__}(...)")
    if not given or not all(callable(getattr(each, "identify", None)) for each in given):
        raise ConfigurationError(
            "Inbox: auth says who may come in: an OIDC, a TrustedProxy, an Auth of your own, or several of them."
            " There is no inbox without one"
        )
    for each in given:
        if not is_async(each.identify):
            raise ConfigurationError(
                f"{type(each).__name__}: identify is awaited: write async def identify(self, request)"
            )
    if any(isinstance(each, Sessions) for each in given):
        raise ConfigurationError(
            "Inbox: Sessions sign nobody in: they are what a login begins. Give auth a way to sign in, such as OIDC, or ApiTokens"
            " for an inbox of programs alone; sessions of your own are Inbox(sessions=...)"
        )
    if any(isinstance(each, ApiTokens) and each.store is not store for each in given):
        raise ConfigurationError("Inbox: ApiTokens are of another store: make them with the store object of the Inbox")
    if any(isinstance(each, ApiTokens) and each.failures is not None for each in given):
        raise ConfigurationError(
            "Inbox: it counts wrong tokens by its limits: give the failures to Inbox(limits=Limits(store, failures=...)),"
            " and not to ApiTokens"
        )
    # Tokens count beside every auth, so that they are no further way.
    return tuple(each for each in given if not isinstance(each, ApiTokens))


def _by_name(agents: Runs[Any, Any] | Sequence[Runs[Any, Any]]) -> Mapping[str, Runs[Any, Any]]:
    given = (agents,) if isinstance(agents, Runs) else tuple(agents)
    if not all(isinstance(each, Runs) for each in given):
        raise ConfigurationError("Inbox: agents are agents or graphs of phronomy's")
    found = {each.spec.name: each for each in given}
    if len(found) != len(given):
        raise ConfigurationError("Inbox: two of the agents have the same name")
    return found
