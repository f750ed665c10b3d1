"""The versions of a run, for the pages and the API: its checkpoints with its forks, a part at a time, and one checkpoint of it.

The chain of one branch is read, and the forks that begin at what is shown of it. A short fork is shown whole, and a long one as a
place that leads to its own page; so a page costs the same however many forks there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from phronomy.errors import CheckpointNotFound, ConfigurationError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import kept_id
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.listing import text
from phronomy.stores.log.log import replay

if TYPE_CHECKING:
    from phronomy.records.checkpoint import Checkpoint
    from phronomy.stores.base import Store
    from phronomy.stores.rows import Branch, Entry

SHOWN: Final = 25
"""Checkpoints of a part of the chain."""

WHOLE: Final = 8
"""Checkpoints of a fork that is shown whole beside the chain."""

READ: Final = 400
"""Entries of forks that are read for one part. What is beyond that is shown as a place."""

FORKS: Final = 20
"""Forks of a part that are shown. The rest are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A checkpoint of a run. `parent` is the one before it, of the same run; `head_of` the branch whose last one it is.

    `aside` says that it is of a fork that is shown beside the chain.
    """

    checkpoint: Checkpoint
    parent: Checkpoint | None
    head_of: Branch | None
    aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A branch that is not shown whole: where it leaves the chain, or None if that is not shown.

    `goes_on` says that the chain comes from it, and that it is the branch itself that goes on there.
    """

    branch: Branch
    at: str | None
    goes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """A part of the versions of a run, along one branch: the checkpoints from number `begin` on, of `total`, oldest first.

    `forks` are the branches that are not shown whole: first those that leave the chain in this part, then the others. `more` is
    the number of forks that are left out.
    """

    branch: Branch
    chain: tuple[Version, ...]
    beside: tuple[Version, ...]
    forks: tuple[Fork, ...]
    begin: int
    total: int
    more: int

    @property
    def end(self) -> int:
        """The number of the checkpoint after the last one that is shown."""
        return self.begin + len(self.chain)


def read_versions(store: Store, id: str, *, before: int | None = None) -> Versions:
    """The versions of a run along the branch of this id: the newest, or those before the checkpoint number `before`.

    Raises `CheckpointNotFound`.
    """
    lineage = store.lineage(branch_id=_checked(id))
    branch = lineage.branch
    found = replay(lineage.entries, kept_by(store), branch_id=branch.id)
    every = [each for each in found if each.run_id == branch.run_id]
    end = len(every) if before is None else min(max(before, 0), len(every))
    begin = max(0, end - SHOWN)
    branches = store.branches(run_id=branch.run_id)
    heads = {each.head: each for each in branches if each.head is not None}
    chain = [
        Version(
            checkpoint=each,
            parent=every[place - 1] if (place := begin + number) else None,
            head_of=heads.get(each.id),
        )
        for number, each in enumerate(every[begin:end])
    ]
    passed = {each.branch_id: each.id for each in every}
    beside, forks = _forks(store, branch, branches, chain, lineage.entries, passed)
    return Versions(
        branch=branch,
        chain=tuple(chain),
        beside=tuple(beside),
        forks=tuple(forks[:FORKS]),
        begin=begin,
        total=len(every),
        more=max(0, len(forks) - FORKS),
    )


def _forks(
    store: Store,
    branch: Branch,
    branches: Sequence[Branch],
    chain: Sequence[Version],
    entries: Sequence[Entry],
    passed: Mapping[str, str],
) -> tuple[list[Version], list[Fork]]:
    """The short forks of what is shown, whole; and the other branches, each with where it leaves.

    `passed` has the last checkpoint of each branch that the chain leads through.
    """
    shown = {each.checkpoint.id: each.checkpoint for each in chain}
    places = _places(entries, shown)
    beside: list[Version] = []
    left, rest = list[Fork](), list[Fork]()
    budget = READ
    for each in branches:  # in the order in which they were made, so that a fork comes before the forks of it
        if each.id == branch.id:
            continue
        if (last := passed.get(each.id)) is not None:
            # The chain comes from it. Where it goes on by itself from there, that is shown as a fork is.
            if each.head != last:
                kind = left if last in shown else rest
                kind.append(Fork(branch=each, at=last if last in shown else None, goes_on=True))
            continue
        at = places.get((each.parent_branch, each.parent_seq))
        if at is None:
            rest.append(Fork(branch=each, at=None))
            continue
        if each.seq <= budget and len(left) + len(beside) < FORKS:
            budget -= each.seq
            found = store.lineage(branch_id=each.id)
            own = [one for one in replay(found.entries, kept_by(store), branch_id=each.id) if one.branch_id == each.id]
            if len(own) <= WHOLE:
                before = shown[at]
                for one in own:
                    head_of = found.branch if one.id == found.branch.head else None
                    beside.append(Version(checkpoint=one, parent=before, head_of=head_of, aside=True))
                    shown[one.id] = before = one
                places |= _places(found.entries, {one.id: one for one in own})
                continue
        left.append(Fork(branch=each, at=at))
    return beside, [*left, *rest]


def _places(entries: Sequence[Entry], shown: Mapping[str, Checkpoint]) -> dict[tuple[str | None, int], str]:
    """The checkpoints that are shown, by the branch and the number of the entry that each is."""
    return {
        (each.branch_id, each.seq): id for each in entries if (id := each.checkpoint_id) is not None and id in shown
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A checkpoint of a run, with its branch, and the checkpoint before it in the same run."""

    branch: Branch
    checkpoint: Checkpoint
    parent: Checkpoint | None


def read_checkpoint(store: Store, id: str, checkpoint_id: str) -> Found:
    """The checkpoint of a run. `id` is that of the run, or of any branch of it. Raises `CheckpointNotFound` if it is of another one."""
    branch, checkpoint = store.locate(_checked(checkpoint_id))
    if checkpoint.path or id not in {each.id for each in store.branches(run_id=checkpoint.run_id)}:
        raise CheckpointNotFound("there is no such checkpoint in this run", id=kept_id(checkpoint_id))
    parent = None
    if checkpoint.parent_id is not None:
        try:
            parent = store.load(checkpoint.parent_id)
        except CheckpointNotFound:  # of a run that was deleted since
            parent = None
    if parent is not None and parent.run_id != checkpoint.run_id:
        parent = None
    return Found(branch=branch, checkpoint=checkpoint, parent=parent)


def _checked(id: str) -> str:
    """The id as stores have it. Raises `CheckpointNotFound` for a text that no id can be."""
    try:
        return text("id", id)
    except ConfigurationError:
        raise CheckpointNotFound("there is no such run or checkpoint", id=kept_id(id)) from None
