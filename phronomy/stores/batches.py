"""Several requests decided in one call, and the primitive under it: several changes in one transaction.

`append` is one change of one branch. `append_all` is several, each of a branch of its own: all are written, or none is. Decisions need
it: "all of these, or nothing" may be about several runs, and a crash between two writes would leave a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from phronomy.records.principals import Principal
from phronomy.stores.derived import batches
from phronomy.stores.derived.batches import Answered, BatchDecision
from phronomy.stores.native import asked
from phronomy.stores.rows import Append, Branch

if TYPE_CHECKING:
    from phronomy.stores.base import Store


class Batches:
    """The part of every store that writes and decides several things at once.

    A store that was written before there were batches does without the primitive: it decides requests one by one, and
    those of one run all or none, but raises `StoreError` where several runs are to be decided all or none.
    """

    # The primitive

    def append_all(self, changes: Sequence[Append]) -> list[Branch]:
        """Write changes of several branches in one transaction, and return the branches after it, in the order of `changes`.

        Each change is for a `holder`, and each is judged as by `append`, in the order of the branch ids: raises as that
        does, and `Behind` has the id of the branch as its text. Raises `StoreError` for two changes of one branch, and for a
        change that is for no holder. Nothing of any change was written then. No changes are no error.
        """
        return batches.append_each(cast("Store", self), changes)

    # Built on it

    def decide_all(
        self,
        answers: Sequence[Answered],
        *,
        by: str | Principal,
        channel: str | None = None,
        all_or_none: bool = False,
    ) -> list[BatchDecision]:
        """Record decisions on up to 1,000 requests, as `decide` records one, and return what came of each, in the order given.

        Each is decided by itself: those that are refused stop no other, and have their `error` in the result. With
        `all_or_none` all are checked first, and recorded in one write: if one is refused, its error is raised, and nothing
        was decided. The audit trail has one record for each decision. A decision that is recorded already under the same
        idempotency key is not recorded again, and is as good as made.

        Raises `InvalidDecision`, with nothing decided, for more than 1,000, for an id that comes twice, and for a `by` or a
        channel that is none. With `all_or_none` also as `decide`, and `StoreError` if the store cannot write to several
        runs at once.
        """
        return batches.decide_all(cast("Store", self), answers, by=by, channel=channel, all_or_none=all_or_none)

    async def adecide_all(
        self,
        answers: Sequence[Answered],
        *,
        by: str | Principal,
        channel: str | None = None,
        all_or_none: bool = False,
    ) -> list[BatchDecision]:
        """The async twin of `decide_all`."""
        store = cast("Store", self)
        return await asked(store, Batches.decide_all, None, answers, by=by, channel=channel, all_or_none=all_or_none)
