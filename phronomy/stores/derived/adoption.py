"""Adoption: a checkpoint that a store has not made, taken in as a branch of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from phronomy.errors import CheckpointEdited, CheckpointError, CheckpointNotFound, StoreError
from phronomy.foundation.quoting import quoted_id
from phronomy.records.checkpoint import Checkpoint
from phronomy.stores import dispatch
from phronomy.stores.log.log import as_sealed, last_of, pending_rows, whole_entries
from phronomy.stores.rows import Append, Branch

if TYPE_CHECKING:
    from phronomy.stores.base import Store


def adopt(store: Store, checkpoint: Checkpoint) -> None:
    """Take a checkpoint in, as `Store.save` does, without looking at its values: the caller has validated it.

    Raises `CheckpointError` for one that could not be read back as it is: nothing was written.
    """
    sealed, entries = as_sealed(checkpoint), tuple(whole_entries(checkpoint))
    # Its parts may each be valid and not belong together, such as two runs in one call. Written, the store would have another
    # checkpoint under its id.
    if last_of(entries) != checkpoint:
        raise CheckpointError(
            f"checkpoint {quoted_id(checkpoint.id)} could not be read back as it is, so it was not written: its parts do not belong"
            " together; it was edited or damaged"
        )
    # A branch of its own, though the text names one: its log begins here, and nothing before it is known.
    branch = Branch.of(checkpoint)
    # Two checkpoints of one run may be brought one after the other. The second cannot be put behind the first, as what
    # lies between them is not known.
    if any(known.id == branch.id for known in store.branches(run_id=branch.run_id)):
        branch = replace(branch, id=checkpoint.id)
    change = Append(
        branch_id=branch.id,
        seq=0,
        entries=entries,
        head=checkpoint.id,
        # Nobody drives it: as running it would look like the run of a dead worker, and `recover_all` would carry it on
        # without being asked. Failed can be resumed, and waits until somebody does.
        status=checkpoint.status if checkpoint.status != "running" else "failed",
        opened=tuple(pending_rows(checkpoint, branch.label)),
    )
    try:
        # Written first and looked at after: a look before it would tell nothing, as another process may save the same
        # text at the same time.
        store.create(branch, change, exclusive=False)
        dispatch.at(store.dispatch, branch.run_id, [row.expires_at for row in change.opened])
    except StoreError as error:
        try:
            # Refused for an id that is there: either the same checkpoint, and then all is well, or another under its
            # id.
            found = store.load(checkpoint.id)
        except CheckpointNotFound:
            raise error from error.__cause__
        # What has been journaled since does not count: a copy of an earlier moment is no forgery.
        if as_sealed(found) != sealed:
            raise CheckpointEdited(
                f"the store has another checkpoint under the id {checkpoint.id}", checkpoint_id=checkpoint.id
            ) from None
