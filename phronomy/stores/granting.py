"""The part of every store that keeps standing grants: making, signing, listing, revoking and using them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, cast

from phronomy.records.grants import Grant, GrantScope
from phronomy.records.principals import Principal
from phronomy.stores.derived import grants
from phronomy.stores.derived.listing import Listing
from phronomy.stores.documents import Documents
from phronomy.stores.native import apart, in_store

if TYPE_CHECKING:
    from phronomy.stores.base import Store


class Granting(Documents):
    """The part of every store that keeps standing grants, as small documents.

    A store that keeps no documents raises `StoreError` where a grant is needed.
    """

    def grant(self, grant: Grant, *, by: str | Principal, channel: str | None = None) -> Grant:
        """Store a standing grant that `by` gives, and return it with its id.

        The store sets `id`, `givers`, `used`, `count`, `at` and `revoked`, whatever the record says. `by` is not checked:
        take it from your login. A grant counts where the approval of the tool allows grants (`Approval(standing=...)`),
        and lets nothing through that its givers may not approve. `channel` says how the grant came in, such as "web".

        Raises `GrantRefused` if its time is over or its arguments are too long to be kept, `InvalidDecision` for a `by`
        that names nobody, and `StoreError`.
        """
        return grants.give(_store(self), grant, by, channel)

    def grant_like(
        self,
        pending_id: str,
        *,
        digest: str,
        by: str | Principal,
        scope: GrantScope = "run",
        exactly: bool = True,
        condition: str | None = None,
        until: datetime | None = None,
        uses: int | None = None,
        channel: str | None = None,
        reason: str | None = None,
    ) -> Grant:
        """Give a standing grant for calls like the one that a request shows. The request itself is not decided.

        Agent, tool, its schema, and the run, thread or requester of the `scope` are those of the request. With
        `exactly`, the grant covers only the arguments that the request shows; without, any arguments, or those for
        which `condition` returns True: the name of a function that `Approval(standing={name: function})` registers.
        `digest` is that of the request which was shown. The other arguments are those of `Grant`, and of `grant`.

        Raises `GrantRefused` if the request is no approval of a call that runs here, if it was decided otherwise than
        approved, or if its run has no such thread or requester; `InvalidDecision` for another digest; `RequestExpired`
        and `UnknownPending` as in `decide`; `InvalidField` for terms that do not go together; and as `grant` does.
        """
        return grants.give_like(
            _store(self),
            pending_id,
            digest=digest,
            by=by,
            scope=scope,
            exactly=exactly,
            condition=condition,
            until=until,
            uses=uses,
            channel=channel,
            reason=reason,
        )

    def sign_grant(self, id: str, *, by: str | Principal, channel: str | None = None) -> Grant:
        """Add another person to those who give a grant, and return it.

        Raises `GrantRefused` if there is no such grant that still counts, or if this person has given it already.
        """
        return grants.sign(_store(self), id, by, channel)

    def revoke(self, id: str, *, by: str | Principal, reason: str | None = None) -> bool:
        """Revoke a grant: from now on, no call uses it. Returns whether there was one that was not revoked before.

        It is kept for a week, so that `grants(all=True)` shows who revoked it and why. One whose row is damaged is deleted.
        """
        return grants.revoke(_store(self), id, by, reason)

    def grants(self, *, agent: str | None = None, tool: str | None = None, all: bool = False) -> Listing[Grant]:
        """The standing grants that still count, oldest first; of an agent, of a tool, or of the whole tenant.

        With `all`, also those of the last week that are revoked or have no uses left. A grant whose row cannot be read
        permits nothing; `unreadable` of the list names it.
        """
        return grants.select(_store(self), agent, tool, over=all)

    def use_grant(self, grant: Grant | str, pending_id: str) -> Grant | None:
        """Count a use of a grant by the request `pending_id`, and return the grant; None if it does not count any more.

        It does not count if it is revoked, its time is over, or it has no uses left. Several workers may use it at
        once: no more calls pass than it has uses. If the number of uses is limited, a second use by the same request is
        the first one. Pass the grant itself where you have it: to find it by its id, all grants of the tenant are read.
        """
        return grants.use(_store(self), grant, pending_id)

    # For an event loop

    async def agrant(self, grant: Grant, *, by: str | Principal, channel: str | None = None) -> Grant:
        """The async twin of `grant`."""
        return await in_store(self, self.grant, grant, by=by, channel=channel)

    async def agrant_like(
        self,
        pending_id: str,
        *,
        digest: str,
        by: str | Principal,
        scope: GrantScope = "run",
        exactly: bool = True,
        condition: str | None = None,
        until: datetime | None = None,
        uses: int | None = None,
        channel: str | None = None,
        reason: str | None = None,
    ) -> Grant:
        """The async twin of `grant_like`."""
        return await in_store(
            self,
            self.grant_like,
            pending_id,
            digest=digest,
            by=by,
            scope=scope,
            exactly=exactly,
            condition=condition,
            until=until,
            uses=uses,
            channel=channel,
            reason=reason,
        )

    async def asign_grant(self, id: str, *, by: str | Principal, channel: str | None = None) -> Grant:
        """The async twin of `sign_grant`."""
        return await in_store(self, self.sign_grant, id, by=by, channel=channel)

    async def arevoke(self, id: str, *, by: str | Principal, reason: str | None = None) -> bool:
        """The async twin of `revoke`."""
        return await in_store(self, self.revoke, id, by=by, reason=reason)

    async def agrants(self, *, agent: str | None = None, tool: str | None = None, all: bool = False) -> Listing[Grant]:
        """The async twin of `grants`."""
        return await apart(self, self.grants, agent=agent, tool=tool, all=all)

    async def ause_grant(self, grant: Grant | str, pending_id: str) -> Grant | None:
        """The async twin of `use_grant`."""
        return await in_store(self, self.use_grant, grant, pending_id)


def _store(store: Granting) -> Store:
    """The store whose part this is."""
    return cast("Store", store)
