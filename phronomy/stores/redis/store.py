"""`RedisStore`: checkpoints in Redis, shared by any number of machines.

Each primitive is one Lua script (`lua/`), and Redis runs a script alone and to its end. So the compare-and-set, the lock and the
transaction of other databases are one thing here. Two rules follow. A script judges first and writes after, since Redis does not undo
a script that fails half way. And it is short, since nothing else is served meanwhile: a long list is read in parts.

A connection can break after a script ran and before its answer came. Each call has a random number, which a change notes in its
branch; a second call with the same number finds it there, and gives the answer of the first without writing again.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar
from urllib.parse import quote

from phronomy.errors import StoreError
from phronomy.foundation.checks import is_number
from phronomy.foundation.quoting import quoted
from phronomy.stores.base import Store, checked_tenant
from phronomy.stores.derived.changes import (
    by_digest,
    check_batch,
    check_change,
    check_new,
    check_parent,
    check_room,
    full,
    grown,
    is_wanted,
    lost,
    not_found,
    one_place,
    taken_id,
)
from phronomy.stores.derived.documents import behind, check_document, is_place, new_version
from phronomy.stores.redis import lua
from phronomy.stores.redis.records import (
    added_args,
    audit_of,
    branch_of,
    branch_texts,
    checkpoint_of,
    document_of,
    encoded,
    entry_row_of,
    first_of,
    kept_of,
    opt,
    packed_entry,
    pending_of,
    row_of,
    time_text,
)
from phronomy.stores.rows import (
    FACETS,
    SIZE,
    Append,
    AuditFilter,
    AuditRow,
    Behind,
    Branch,
    BranchFilter,
    BranchStatus,
    CheckpointFilter,
    CheckpointRow,
    Claim,
    Document,
    Entry,
    Held,
    Lineage,
    Occupied,
    PendingFilter,
    PendingRow,
)
from phronomy.stores.sound_rows import damaged_branch, entries_of, records_of

if TYPE_CHECKING:
    import redis

P = ParamSpec("P")
T = TypeVar("T")

_BATCH: Final = 500
"""Branches, rows or lines that one script reads at a time: while it runs, Redis does nothing else."""

# With several facets, requests of the shortest list are looked up in the others one by one. A rare combination could
# take a look at each: so a script gives up after so many and says where it was, and Redis answers others in between.
_LOOKS: Final = 5000
"""Pending approvals that one script looks at for a filter of several facets."""

_ALL: Final = 2**31


class RedisStore(Store):
    """A store in Redis: at `url` (`redis://`, `rediss://`, `unix://`), or behind a `client` of redis-py.

    Redis must be configured to keep its data: with `appendonly yes` and `appendfsync always`, so that a crash loses
    nothing, and with `maxmemory-policy noeviction`, so that it does not delete runs when memory is short. If a setting
    is wrong, the store logs a warning when it is first used; with `require_persistence` it raises `StoreError`.
    Replicas lag behind, so a failover can lose the last decisions; a human is then asked again about a call that was
    already approved.

    Every key begins with `prefix` and `tenant` in one hash tag, so all data of a tenant is in one slot of a cluster.
    `timeout` is the number of seconds that Redis may take to answer. If a connection is lost, the call is tried once
    more. A `client` has its own timeouts, may or may not decode responses, and is not closed by `close`.

    Raises `StoreError` for an invalid URL, or if the package is missing: `pip install 'phronomy[redis]'`. If Redis
    cannot be reached, the first call raises.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        client: redis.Redis | redis.RedisCluster | None = None,
        prefix: str = "phronomy",
        tenant: str = "",
        clock: Callable[[], float] = time.time,
        lease: float = 30.0,
        ttl: float | None = None,
        timeout: float = 5.0,
        require_persistence: bool = False,
    ) -> None:
        super().__init__(tenant=tenant, clock=clock, lease=lease, ttl=ttl)
        if not isinstance(prefix, str) or not 0 < len(prefix) <= 200 or not prefix.isprintable():
            raise StoreError("the prefix of a Redis store is printable text of 1 to 200 characters")
        if not is_number(timeout) or timeout <= 0:
            raise StoreError(f"the timeout is a number of seconds above 0, not {quoted(timeout)}")
        if not isinstance(url, str | None):
            raise StoreError(f"the URL of a Redis store is text, not {type(url).__name__}")
        try:
            from phronomy.stores.redis.connection import open_link  # noqa: PLC0415  # a process without this store needs no driver
        except ImportError:
            raise StoreError("a Redis store needs redis-py: pip install 'phronomy[redis]'") from None
        # Nothing is connected to yet. An application builds its stores before its Redis may be up.
        self._prefix = prefix
        # What is quoted holds no brace and no colon: nothing that a prefix or a tenant is called ends the tag or begins a key.
        place = quote(prefix, safe="")
        self._link = open_link(url, client, prefix=place, timeout=timeout, strict=require_persistence)
        # In braces: a cluster hashes what is in them, so all keys of a tenant lie on one node, and a script may touch
        # any of them.
        self._root = self._root_of(tenant)

    def __repr__(self) -> str:
        return f"RedisStore(prefix={self._prefix!r})"

    def for_tenant(self, tenant: str) -> Self:
        other = copy.copy(self)
        other.tenant = checked_tenant(tenant)
        other._root = self._root_of(tenant)
        return other

    def close(self) -> None:
        self._link.close()

    # Primitives that write: one script each
    #
    # A script runs alone and to its end: judging and writing are one step without a lock. WATCH and MULTI would do as
    # well, but fail under every neighbour's write and have to be repeated; and a cluster has no transaction over the
    # keys that a script finds on its way.

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        check_new(branch, change)
        check_room(change)
        # A new branch is judged by nobody but the rules, so what it will be is worked out here. `append` has to do that
        # inside the script, where the branch is.
        after = grown(branch, change, now=self.clock(), lease=self.lease)
        fields, texts = [opt(text) for text in branch_texts(after, start=branch.seq)], by_digest(change.texts)
        args = [b"1" if exclusive else b"0", encoded(branch.id), *fields, *added_args(change, texts)]
        kind, *rest = self._call(lua.CREATE, self._own(branch.id, change, texts), args)
        match kind:
            case b"occupied":
                raise Occupied(branch_of(rest[0]))
            case b"behind":
                raise Behind(rest[0].decode())
            # The same function as in other stores says what is wrong, and in the same words.
            case b"parent":
                check_parent(branch, branch_of(rest[0]) if rest[0] else None)
            case b"taken":
                raise taken_id(rest[0].decode(), rest[1].decode())
            case _:
                return

    def append(self, change: Append) -> Branch:
        check_change(change)
        texts = by_digest(change.texts)
        # The clock of this worker, as everywhere, and not Redis' own: a test that moves a clock moves this one, and
        # leases are judged by the clock that set them.
        now = self.clock()
        args = [time_text(now), *self._change(change, texts, now)]
        kind, *rest = self._call(lua.APPEND, self._own(change.branch_id, change, texts), args)
        if kind != b"ok":
            raise _refusal(change, kind, rest)
        return branch_of(rest[0])

    def append_all(self, changes: Sequence[Append]) -> list[Branch]:
        ordered, now = check_batch(changes), self.clock()
        if not ordered:
            return []
        args = [time_text(now), b"%d" % len(ordered), *(arg for each in ordered for arg in self._change(each, {}, now))]
        keys = [key for each in ordered for key in self._own(each.branch_id, each, ())]
        kind, *rest = self._call(lua.APPEND_ALL, keys, args)
        if kind != b"ok":
            raise _refusal(ordered[int(rest[0]) - 1], kind, rest[1:])
        after = {branch.id: branch for branch in map(branch_of, rest[0])}
        return [after[each.branch_id] for each in changes]

    def _change(self, change: Append, texts: Mapping[str, str], now: float) -> list[bytes]:
        """A change, with its texts by digest, in the order in which `change` in the scripts reads it."""
        claim, kind = (
            change.claim or change.holder,
            b"own" if change.holder is None else b"holder" if change.hands_over else b"note",
        )
        lease = change.lease or (self.lease if change.take is not None else 0.0)
        return [
            *(encoded(change.branch_id), b"%d" % change.seq, b"%d" % SIZE),
            # Whether the claim is of this branch at all is seen here; owner and fence are compared in the script.
            *(b"" if claim is None else kind if claim.branch_id == change.branch_id else b"other " + kind,),
            *(encoded(claim.owner if claim else ""), b"%d" % (claim.fence if claim else 0)),
            *(opt(change.take), b"=" + time_text(now + lease) if lease else b"", b"1" if change.release else b"0"),
            *(opt(change.head), opt(change.status), b"1" if change.announce else b"0"),
            *added_args(change, texts),
        ]

    def renew(self, claim: Claim) -> Branch:
        until = time_text(self.clock() + self.lease)
        args = [encoded(claim.branch_id), encoded(claim.owner), b"%d" % claim.fence, until]
        kind, *rest = self._call(lua.RENEW, [self._key("b", claim.branch_id)], args)
        if kind != b"ok":
            raise lost(claim)
        return branch_of(rest[0])

    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        args = [encoded(claim.branch_id), encoded(claim.owner), b"%d" % claim.fence, opt(status)]
        self._call(lua.RELEASE, [self._key("b", claim.branch_id)], args)

    def announced(self, branch_id: str, seq: int) -> None:
        args = [encoded(branch_id), b"%d" % seq]
        if self._call(lua.ANNOUNCED, [self._key("b", branch_id)], args)[0] != b"ok":
            raise not_found("branch", branch_id)

    def remove(self, branches: Mapping[str, int], detached: Mapping[str, Sequence[Entry]]) -> None:
        # All in one script, however many there are: between two the removed rows would be missing to somebody.
        args = [time_text(self.clock()), b"%d" % len(branches)]
        for branch_id, seq in branches.items():
            args += [encoded(branch_id), b"%d" % seq]
        args.append(b"%d" % len(detached))
        for branch_id, entries in detached.items():
            args += [encoded(branch_id), b"%d" % len(entries)]
            for entry in entries:
                args += [b"%d" % entry.seq, packed_entry(entry)]
        # A cluster finds the node by the keys, so there has to be one.
        keys = [self._key("b", branch_id) for branch_id in branches] or [self._key("m")]
        kind, *rest = self._call(lua.REMOVE, keys, args)
        if kind != b"ok":
            raise Behind(rest[0].decode())

    # Primitives that read

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        one_place(checkpoint_id, branch_id)
        key = self._key("b", branch_id) if checkpoint_id is None else self._key("c", checkpoint_id)
        # Branch and logs in one script, so they are of one moment.
        kind, *rest = self._call(lua.LINEAGE, [key], [opt(checkpoint_id, read=True), opt(branch_id, read=True)])
        if kind != b"ok":
            raise not_found("branch" if checkpoint_id is None else "checkpoint", checkpoint_id or branch_id or "")
        branch = branch_of(rest[0])
        rows = [
            entry_row_of(packed, of.decode(), seq)
            # The script begins at the end and goes from log to parent; reading goes the other way.
            for of, first, log in reversed(rest[1])
            for seq, packed in enumerate(log, first_of(of, first))
        ]
        return Lineage(branch=branch, entries=entries_of(branch.id, rows))

    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        found: list[Branch] = []
        # The list that the walk goes through covers a part of the filter at most. The rest is judged here, by the one
        # function that says what a filter means.
        for values in self._behind(wanted):
            if wanted.limit is not None and len(found) >= wanted.limit:
                break
            (branch,) = records_of(Branch, [row_of(values)])
            if is_wanted(branch, wanted):
                found.append(branch)
        return found

    def select_pending(self, wanted: PendingFilter) -> list[PendingRow]:
        found: list[PendingRow] = []
        while wanted.limit is None or len(found) < wanted.limit:
            most = _BATCH if wanted.limit is None else min(_BATCH, wanted.limit - len(found))
            rows, *place = self._pending(wanted, False, most)
            found += [pending_of(*row, known=wanted.pending_id) for row in rows]
            if not place[0]:
                break
            # The script gave up before it was through: on from the place that it names.
            wanted = replace(wanted, after=(float(place[0]), int(place[1])))
        return found

    def count_pending(self, wanted: PendingFilter) -> int:
        # A count is of all, whatever page somebody is on.
        wanted = replace(wanted, after=None)
        count = 0
        while True:
            more, *place = self._pending(wanted, True, _ALL)
            count += int(more)
            if not place[0]:
                return count
            wanted = replace(wanted, after=(float(place[0]), int(place[1])))

    def select_checkpoints(self, wanted: CheckpointFilter) -> list[CheckpointRow]:
        how, key = b"walk", self._list("B", R=wanted.run_id, H=wanted.thread_id)
        # Few checkpoints have a label: their own list is shorter than any walk over branches.
        if wanted.label is not None or wanted.labeled:
            how, key = b"label", self._list("LL", L=wanted.label)
        filters = [opt(text, read=True) for text in (wanted.run_id, wanted.thread_id, wanted.agent)]
        place = [b"", b""] if wanted.after is None else [b"%d" % part for part in divmod(wanted.after, SIZE)]
        found: list[CheckpointRow] = []
        while wanted.limit is None or len(found) < wanted.limit:
            most = _BATCH if wanted.limit is None else min(_BATCH, wanted.limit - len(found))
            _, rows, *place = self._call(lua.CHECKPOINTS, [key], [how, b"%d" % most, *place, *filters])
            found += [checkpoint_of(*row) for row in rows]
            if not place[0]:
                break
        return found

    def select_audit(self, wanted: AuditFilter) -> list[AuditRow]:
        key = self._list("m", ap=wanted.pending_id, ar=wanted.run_id, at=wanted.thread_id)
        times = [b"" if time is None else b"=" + time_text(time) for time in (wanted.since, wanted.until)]
        found: list[AuditRow] = []
        after = max(0, wanted.after or 0)
        while wanted.limit is None or len(found) < wanted.limit:
            args = [b"0" if key == self._key("m") else b"1", b"%d" % _BATCH, b"%d" % after, *times]
            _, numbers, lines = self._call(lua.AUDIT, [key], args)
            rows = [audit_of(int(n), packed) for n, packed in zip(numbers, lines, strict=True)]
            # What a list of numbers cannot say (a second id, a time) is judged here. The script cuts times only
            # roughly, and on the safe side.
            found += [row for row in rows if wanted.allows(row)]
            if len(rows) < _BATCH:
                break
            after = rows[-1].n
        return found[: wanted.limit]

    def child_ids(self, checkpoint_id: str) -> list[str]:
        key, args = self._key("c", checkpoint_id), [encoded(checkpoint_id, read=True)]
        found = self._call(lua.CHILDREN, [key], args)[1]
        # Sets have no order. Their places give it: the number of the branch, then that in its log.
        return [id.decode() for *_, id in sorted(found, key=lambda row: (int(row[0]), float(row[1])))]

    def kept_text(self, digest: str) -> str | None:
        return kept_of(self._call(lua.KEPT, [self._key("t", digest)], ())[1])

    # Documents

    def get_document(self, kind: str, key: str) -> Document | None:
        if not is_place(kind, key):
            return None
        packed = self._call(lua.DOCUMENT, [self._key("D", kind)], [encoded(key), time_text(self.clock())])[1]
        return document_of(kind, encoded(key), packed) if packed is not None else None

    def select_documents(self, kind: str, *, after: str | None = None, limit: int | None = None) -> list[Document]:
        keys = [self._key("d", kind), self._key("D", kind)]
        found: list[Document] = []
        last: bytes | None = encoded(after or "", read=True)
        while last is not None and (limit is None or len(found) < limit):
            most = _BATCH if limit is None else min(_BATCH, limit - len(found))
            _, rows, last = self._call(lua.SELECT_DOCUMENTS, keys, [last, b"%d" % most, time_text(self.clock())])
            found += [document_of(kind, *row) for row in rows]
        return found

    def put_document(self, document: Document) -> Document:
        check_document(document)
        after = replace(document, version=new_version())
        args = [
            *map(encoded, (after.kind, after.key)),
            *(time_text(self.clock()), encoded(document.version), encoded(after.version)),
            *(b"" if after.expires_at is None else time_text(after.expires_at), encoded(after.text)),
        ]
        if self._call(lua.PUT_DOCUMENT, self._of_kind(after.kind), args)[0] != b"ok":
            raise behind(after.kind, after.key)
        return after

    def delete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
        if is_place(kind, key):
            args = [encoded(kind), encoded(key), time_text(self.clock()), opt(version)]
            if self._call(lua.DROP_DOCUMENT, self._of_kind(kind), args)[0] != b"ok":
                raise behind(kind, key)

    def expire_documents(self) -> None:
        # So many at a time: while a script runs, Redis serves nobody else.
        now = time_text(self.clock())
        while int(self._call(lua.EXPIRE_DOCUMENTS, [self._key("dx")], [now, b"%d" % _BATCH])[1]) == _BATCH:
            pass

    def _of_kind(self, kind: str) -> list[bytes]:
        """The keys that a change of a document of this kind may touch."""
        return [self._key("d", kind), self._key("D", kind), self._key("dx")]

    # What they are made of

    def _call(self, script: lua.Script, keys: Sequence[bytes], args: Sequence[bytes]) -> list[Any]:
        kind, *rest = self._link.call(script, keys, args, self._root)
        if kind == b"damaged":
            raise damaged_branch(rest[0].decode())
        return [kind, *rest]

    def _root_of(self, tenant: str) -> bytes:
        return f"{{{quote(self._prefix, safe='')}:{quote(tenant, safe='')}}}:".encode()

    def _key(self, kind: str, id: str | None = None) -> bytes:
        """The key of something that is there once, or of the thing of this id. The id comes last, so it can be any text."""
        # A NUL, a colon or a space in an id changes nothing: whatever follows the second colon is the id.
        return self._root + kind.encode() + (b"" if id is None else b":" + encoded(id, read=True))

    def _own(self, branch_id: str, change: Append, texts: Iterable[str]) -> list[bytes]:
        """The keys of a branch that a change may touch, those of the checkpoints in it, and those of texts, by their digests."""
        # Named beforehand where that is possible, as Redis asks. The other keys hang on what the script finds; all lie
        # in the same slot.
        roots = [entry.checkpoint_id for entry in change.entries if entry.checkpoint_id is not None and not entry.path]
        own = [*(self._key(kind, branch_id) for kind in "blro"), *(self._key("c", id) for id in roots)]
        return [*own, *(self._key("t", digest) for digest in texts)]

    def _list(self, rest: str, **ids: str | None) -> bytes:
        """The key of the first list whose id is given, else of the one named first."""
        return next((self._key(kind, id) for kind, id in ids.items() if id is not None), self._key(rest))

    def _branches(self, wanted: BranchFilter) -> Iterable[list[Any]]:
        """The branches that may be wanted, in order, as the scripts show them."""
        # In the order of how few they leave. Each list is kept by the scripts as branches change, so none of these
        # questions looks at all that there ever was, but the last.
        if wanted.parents is not None:
            keys = [self._key("F", id) for id in dict.fromkeys(wanted.parents)]
            return self._few(keys, b"+inf") if keys else ()
        if wanted.run_id is not None or wanted.thread_id is not None:
            return self._walk(self._list("B", R=wanted.run_id, H=wanted.thread_id))
        if wanted.unannounced:
            return self._walk(self._key("una"))
        if wanted.handed:
            return self._walk(self._key("hand"))
        if wanted.abandoned_at is not None:
            return self._few([self._key("run")], time_text(wanted.abandoned_at))
        if wanted.ended_before is not None:
            return self._few([self._key("end")], b"(" + time_text(wanted.ended_before))
        return self._walk(self._key("B"))

    def _behind(self, wanted: BranchFilter) -> Iterable[list[Any]]:
        """The branches that may be wanted, in the order that is wanted, from the place on that is wanted."""
        if wanted.after is None and not wanted.newest:
            return self._branches(wanted)
        place = b"+inf" if wanted.newest else b"0"
        if wanted.after is not None:
            place = self._call(lua.BRANCHES, [self._key("B")], [b"one", b"1", encoded(wanted.after, read=True)])[1]
            if place is None:
                return ()
        listed = self._list("B", R=wanted.run_id, H=wanted.thread_id)
        return self._walk(listed, how=b"back" if wanted.newest else b"walk", after=place, most=wanted.limit)

    def _walk(
        self, key: bytes, *, how: bytes = b"walk", after: bytes = b"0", most: int | None = None
    ) -> Iterable[list[Any]]:
        batch = _BATCH if most is None else min(_BATCH, most)
        while True:
            # By numbers: branches that are made meanwhile come at the end, and those that go leave no gap that
            # something could fall through.
            found = self._call(lua.BRANCHES, [key], [how, b"%d" % batch, after])[1]
            yield from found
            if not found or len(found) < batch:
                return
            after = found[-1][1]

    def _few(self, keys: Sequence[bytes], highest: bytes) -> Iterable[list[Any]]:
        kind, found = self._call(lua.BRANCHES, keys, [b"few", b"%d" % _BATCH, highest])
        if kind == b"ok":
            yield from found
            return
        # Members begin with the number of their branch, at a fixed width, so as text they are in its order.
        found.sort()
        for start in range(0, len(found), _BATCH):
            args = [b"these", b"%d" % _BATCH, *found[start : start + _BATCH]]
            yield from self._call(lua.BRANCHES, keys[:1], args)[1]

    def _pending(self, wanted: PendingFilter, counting: bool, most: int) -> list[Any]:
        facets = dict(wanted.facets)
        # The name is a part of a key. One that does not exist finds nothing, as elsewhere, and reaches no other key.
        if not facets.keys() <= set(FACETS):
            return [0 if counting else [], b"", b""]
        if wanted.pending_id is not None:
            facets["id"] = wanted.pending_id
        keys = [self._key("w"), self._key("x"), *(self._key(f"f:{name}", value) for name, value in facets.items())]
        score, n = wanted.after or (0.0, 0)
        args = [
            *(b"1" if counting else b"0", b"1" if wanted.newest else b"0", b"%d" % most, b"%d" % _LOOKS),
            *(
                b"" if time is None else b"=" + time_text(time)
                for time in (wanted.since, wanted.until, wanted.expired_at)
            ),
            *(b"" if wanted.after is None else b"=" + time_text(score), b"%016d" % min(n, 10**16 - 1)),
        ]
        return self._call(lua.PENDING, keys, args)[1:]


def _refusal(change: Append, kind: bytes, rest: Sequence[Any]) -> Exception:
    """The error for a change that a script has refused, by what it says. `grown` raises in the order of its answers."""
    match kind:
        case b"lost" if change.claim is not None:
            return lost(change.claim)
        case b"behind":
            return Behind(change.branch_id)
        case b"held":
            return Held(branch_of(rest[0]))
        case b"taken":
            return taken_id(rest[0].decode(), rest[1].decode())
        case b"full":
            return full(change.branch_id)
        case _:
            return not_found("branch", change.branch_id)
