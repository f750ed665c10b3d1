"""Tests of a store: whole runs of an agent, through both drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phronomy.agents.agent import Agent
from phronomy.errors import (
    ApprovalExpired,
    CheckpointAlreadyResumed,
    ModelError,
    NothingDecided,
    RunBusy,
    StoreError,
    ThreadBusy,
)
from phronomy.observability.announcements import Announcements
from phronomy.records.audit import AuditRecord
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Approve, Reject
from phronomy.records.principals import Principal
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, BranchFilter, PendingFilter
from phronomy.testing.scripted import ScriptedModel, call
from phronomy.testing.store_contract.base import StoreTests, branch_of, everything, refused
from phronomy.tools.tool import tool

if TYPE_CHECKING:
    from phronomy.observability.events import Event

PAY = call("pay", {"amount": 5.0}, id="c1")
SHIP = call("pay", {"amount": 7.5, "to": "Ben"}, id="c2")
LOOK = call("look", {"at": "it"}, id="c3")


class Lost(BaseException):
    """The worker is gone."""


class _Told(Announcements):
    """Notes what it is told: the type of each event and its key. Raises the next of `faults` first, if there is one."""

    def __init__(self, *faults: BaseException | None) -> None:
        self.faults: list[BaseException | None] = list(faults)
        self.heard: list[tuple[str, str]] = []

    def _hear(self, event: Event) -> None:
        """Note the event, or raise the fault that is due."""
        fault = self.faults.pop(0) if self.faults else None
        self.heard.append((event.type, event.key))
        if fault is not None:
            raise fault

    on_suspended = on_decided = on_completed = on_rejected = on_cancelled = on_superseded = _hear

    @property
    def types(self) -> list[str]:
        """The types of the events that were told, each event once, in the order of the first time."""
        return [type for type, _ in dict.fromkeys(self.heard)]


WRITES = ("append", "renew", "release", "announced")


def lose(store: Store) -> None:
    """Cuts the store off: from here on no write reaches it, as if the worker were gone."""

    def away(*_: object, **__: object) -> Any:
        raise StoreError("the worker is gone")

    for name in WRITES:
        setattr(store, name, away)
    raise Lost


class ResumeTests(StoreTests):
    """Tests that a stopped run is continued exactly once, by any process."""

    def test_a_run_suspends_and_is_resumed_in_another_object(self, driver: str) -> None:
        """What was approved runs once, exactly as it was shown; the run goes on to its answer."""
        ran: list[Any] = []
        result = self.drive(driver, self.clerk([LOOK, PAY], ran=ran), "invoke", "Pay", thread_id="t")
        assert (result.status, ran) == ("suspended", ["it"])
        other = self.reopened()
        (waiting,) = other.pending(thread_id="t")
        assert waiting.approval == result.checkpoint.pending[0]
        assert waiting.approval.args == {"amount": 5.0, "to": "Ann"}
        with refused(NothingDecided):
            self.drive(driver, self.clerk("x", store=other), "resume", waiting.checkpoint_id)
        done = self.drive(
            driver, self.clerk("Paid.", store=other, ran=ran), "resume", waiting.checkpoint_id, approved=True, by="ann"
        )
        assert (done.output, ran, done.run_id) == ("Paid.", ["it", (5.0, "Ann")], result.run_id)
        again = self.reopened()
        assert again.load(done.checkpoint.id) == done.checkpoint
        assert again.pending() == [] and again.latest("t") == done.checkpoint
        branch = branch_of(again, result.run_id)
        assert (branch.status, branch.owner, branch.head) == ("completed", None, done.checkpoint.id)

    def test_a_decision_counts_once(self, driver: str) -> None:
        """Whoever comes later is told who was first and what came of it, and changes nothing."""
        ran: list[Any] = []
        waits = self.drive(driver, self.clerk(PAY), "invoke", "Pay").checkpoint
        done = self.drive(driver, self.clerk("Paid.", ran=ran), "resume", waits, approved=True, by="ann")
        before = everything(self.store)
        late = self.clerk("x", store=self.reopened(), ran=ran)
        for approved in (True, False):
            with refused(CheckpointAlreadyResumed) as caught:
                self.drive(driver, late, "resume", waits.id, approved=approved, by="ben")
            error = caught.value
            assert error.decision is not None and error.decision.by == Principal(id="ann")
            assert (error.progress, error.pending_id, error.checkpoint_id) == ("ended", waits.pending[0].id, waits.id)
            assert error.result.checkpoint == done.checkpoint
        assert (everything(self.store), ran) == (before, [(5.0, "Ann")])

    def test_two_decisions_on_one_checkpoint_are_applied_one_after_the_other(self, driver: str) -> None:
        """By different people, from the same checkpoint, in either order."""
        ran: list[Any] = []
        waits = self.drive(driver, self.clerk([PAY, SHIP]), "invoke", "Pay both").checkpoint
        one, two = waits.pending
        still = self.drive(driver, self.clerk(ran=ran), "resume", waits, decisions={two.id: Approve()}, by="ben")
        assert (still.status, [found.approval.id for found in self.store.pending()]) == ("suspended", [one.id])
        answer = {one.id: Reject(reason="too much")}
        done = self.drive(
            driver, self.clerk("One paid.", store=self.reopened(), ran=ran), "resume", waits, decisions=answer, by="ann"
        )
        assert (done.output, ran) == ("One paid.", [(7.5, "Ben")])
        decided = [(decision.kind, decision.by and decision.by.id) for decision in done.checkpoint.decisions]
        assert decided == [("approve", "ben"), ("reject", "ann")]
        assert [record.kind for record in self.store.audit()] == ["approve", "reject"]

    def test_a_failure_leaves_the_last_checkpoint_to_go_on_from(self, driver: str) -> None:
        """The thread is not free until then."""
        with refused(ModelError) as failed:
            self.drive(driver, self.clerk(LOOK, ModelError("away")), "invoke", "Look", thread_id="t")
        checkpoint, run_id = failed.value.checkpoint, failed.value.run_id
        assert checkpoint is not None and run_id is not None
        assert branch_of(self.store, run_id).status == "failed"
        with refused(ThreadBusy) as busy:
            self.drive(driver, self.clerk("x"), "invoke", "And?", thread_id="t")
        assert (busy.value.run_id, busy.value.checkpoint_id) == (run_id, checkpoint.id)
        ran: list[Any] = []
        other = self.clerk("Seen.", store=self.reopened(), ran=ran)
        assert self.drive(driver, other, "resume", checkpoint.id).output == "Seen."
        assert ran == []

    def test_a_run_that_waits_is_cancelled_or_superseded(self, driver: str) -> None:
        """What waited waits no more, and the thread is free."""
        waits = self.drive(driver, self.clerk(PAY), "invoke", "Pay", thread_id="t").checkpoint
        with refused(ThreadBusy) as busy:
            self.drive(driver, self.clerk("x"), "invoke", "Hello?", thread_id="t")
        assert (busy.value.checkpoint_id, busy.value.pending_ids) == (waits.id, (waits.pending[0].id,))
        other = self.clerk("Hello.", PAY, store=self.reopened())
        said = self.drive(driver, other, "invoke", "Hello?", thread_id="t", on_pending="supersede")
        assert (said.output, branch_of(self.store, waits.run_id).status) == ("Hello.", "superseded")
        assert self.store.pending() == []
        second = self.drive(driver, other, "invoke", "Pay now", thread_id="t").checkpoint
        ended = self.drive(driver, self.clerk("x"), "cancel", second.run_id, reason="no", by="ann")
        assert (ended.status, self.store.count()) == ("cancelled", 0)
        statuses = [branch.status for branch in self.store.branches(thread_id="t")]
        assert statuses == ["superseded", "completed", "cancelled"]
        with refused(CheckpointAlreadyResumed):
            self.drive(driver, self.clerk("x"), "resume", second, approved=True)
        kinds = [(record.kind, record.reason, record.by and record.by.id) for record in self.store.audit()]
        assert kinds == [("supersede", None, None), ("cancel", "no", "ann")]

    def test_a_run_that_is_worked_on_is_told_and_ends_at_its_next_boundary(self, driver: str) -> None:
        """By somebody with a store object of their own; nobody else carries it on meanwhile."""
        heard: list[Any] = []
        other = self.clerk("x", store=self.reopened())
        place: list[str] = []

        @tool
        def work() -> str:
            """Work."""
            (branch,) = other.store.branches()
            with refused(RunBusy):
                other.recover(branch.id)
            heard.append(other.recover_all())
            heard.append(other.cancel(branch.id, reason="stop", by="ann").status)
            place.append(branch.id)
            return "worked"

        agent = Agent(name="clerk", model=ScriptedModel([call("work"), "x"]), tools=[work], store=self.store)
        result = self.drive(driver, agent, "invoke", "Go")
        assert (result.status, heard) == ("cancelled", [[], "running"])
        assert branch_of(self.reopened(), place[0]).status == "cancelled"
        assert [(record.kind, record.reason) for record in self.store.audit()] == [("cancel", "stop")]

    def test_a_fork_goes_its_own_way(self, driver: str) -> None:
        """It asks anew, and does not run again what has run; the branch that it left stays as it was."""
        ran: list[Any] = []
        waits = self.drive(driver, self.clerk([LOOK, PAY], ran=ran), "invoke", "Pay", label="run").checkpoint
        done = self.drive(driver, self.clerk("Paid.", ran=ran), "resume", waits, approved=True)
        past = [self.store.load(info.id).model_dump_json() for info in self.store.list()]
        other = self.clerk("Paid again.", store=self.reopened(), ran=ran)
        fork = self.drive(driver, other, "fork", waits.id, label="what if")
        assert [found.approval.tool_name for found in self.store.pending(label="what if")] == ["pay"]
        assert self.store.count(label="run") == 0 and self.store.count(run_id=waits.run_id) == 1
        assert [child.id for child in self.store.children(waits.id)] == [
            self.store.history(done.checkpoint.id)[len(self.store.history(waits.id))].id,
            fork.id,
        ]
        ended = self.drive(driver, other, "resume", fork, approved=False, reason="no")
        assert (ended.output, ended.run_id, ran) == ("Paid again.", waits.run_id, ["it", (5.0, "Ann")])
        again = self.drive(driver, self.clerk("Once.", ran=ran), "fork", waits.id)
        assert self.drive(driver, self.clerk("Once.", ran=ran), "resume", again, approved=True).output == "Once."
        assert ran == ["it", (5.0, "Ann")], "a settled call never runs again"
        kept = self.store.list()[: len(past)]
        assert [self.store.load(info.id).model_dump_json() for info in kept] == past
        assert [found.id for found in self.store.history(ended.checkpoint.id)][: len(self.store.history(waits.id))] == [
            found.id for found in self.store.history(waits.id)
        ]


class ExpiryTests(StoreTests):
    """Tests of requests that nobody decided in time."""

    def test_a_decision_that_comes_too_late_does_not_count(self, driver: str) -> None:
        """By the store's clock, at that very second; the call is settled as expired."""
        ran: list[Any] = []
        waits = self.drive(driver, self.clerk(PAY, approval_timeout=30.0), "invoke", "Pay").checkpoint
        self.clock.now = 1029.9
        assert self.store.select_pending(PendingFilter(expired_at=self.clock.now)) == []
        self.clock.now = 1030.0
        assert len(self.store.select_pending(PendingFilter(expired_at=self.clock.now))) == 1
        late = self.clerk("Nobody said.", store=self.reopened(), ran=ran)
        with refused(ApprovalExpired) as expired:
            self.drive(driver, late, "resume", waits, approved=True, by="ann")
        assert (expired.value.result.output, expired.value.pending_ids) == ("Nobody said.", (waits.pending[0].id,))
        assert (ran, self.store.count()) == ([], 0)
        assert [(record.kind, record.by) for record in self.store.audit()] == [("expire", None)]
        assert self.drive(driver, self.clerk("x"), "recover_all") == []

    def test_recovering_settles_what_has_lapsed_and_nothing_else(self, driver: str) -> None:
        """Of this agent; cancelled where the agent says so, and still to be decided where it says that."""
        options: list[dict[str, Any]] = [
            {"approval_timeout": 30.0},
            {"approval_timeout": 30.0, "on_expiry": "cancel"},
            {"approval_timeout": 30.0, "on_expiry": "stay"},
            {"approval_timeout": 40.0},
            {"approval_timeout": 30.0, "name": "other"},
            {},
        ]
        runs = [self.drive(driver, self.clerk(PAY, **each), "invoke", "Pay").run_id for each in options]
        self.clock.now = 1030.0
        done = self.drive(driver, self.clerk("Nobody said.", store=self.reopened()), "recover_all")
        statuses = {each.run_id: each.result and each.result.status for each in done}
        assert statuses == {runs[0]: "completed", runs[1]: "cancelled"}
        assert [found.run_id for found in self.store.pending()] == runs[2:]
        assert self.drive(driver, self.clerk("x"), "recover_all") == []
        (stays,) = self.store.pending(run_id=runs[2])
        assert self.drive(driver, self.clerk("Paid."), "resume", stays.checkpoint_id, approved=True).output == "Paid."


class AnnounceTests(StoreTests):
    """Tests that everything that is stored is announced at least once."""

    def test_what_happens_is_told_once_it_is_stored(self, driver: str) -> None:
        """In order; where nothing went wrong, once."""
        told = _Told()
        waits = self.drive(driver, self.clerk(PAY, announcements=[told]), "invoke", "Pay").checkpoint
        assert told.types == ["suspended"]
        self.drive(
            driver, self.clerk("Paid.", announcements=[told], store=self.reopened()), "resume", waits, approved=True
        )
        assert told.types == ["suspended", "decided", "completed"]
        assert len(told.heard) == len({key for _, key in told.heard}) == 3
        second = self.drive(driver, self.clerk(PAY, announcements=[told]), "invoke", "Pay").checkpoint
        self.drive(driver, self.clerk(announcements=[told]), "cancel", second)
        assert told.types[3:] == ["suspended", "cancelled"]
        assert self.store.select_branches(BranchFilter(unannounced=True)) == []
        assert self.drive(driver, self.clerk(announcements=[told]), "recover_all") == []
        assert len(told.heard) == 5

    def test_what_could_not_be_told_is_told_by_recovering(self, driver: str) -> None:
        """In the same order, under the same keys; nothing of the run is changed by it."""
        told = _Told(ValueError("away"), ValueError("away"), None, KeyboardInterrupt())
        waits = self.drive(driver, self.clerk(PAY, announcements=[told]), "invoke", "Pay").checkpoint
        assert [branch.id for branch in self.store.select_branches(BranchFilter(unannounced=True))] == [waits.run_id]
        before = everything(self.store)[1:4]
        other = self.clerk("Paid.", announcements=[told], store=self.reopened())
        for _ in range(3):
            assert self.drive(driver, other, "recover_all") == []
        assert told.heard == [told.heard[0]] * 3
        assert everything(self.store)[1:4] == before
        with refused(KeyboardInterrupt):
            self.drive(driver, other, "resume", waits, approved=True)
        [found] = self.drive(driver, other, "recover_all")  # it carries out what was approved, too
        assert found.result is not None and found.result.output == "Paid."
        assert told.heard[3:5] == [told.heard[3]] * 2
        assert told.types == ["suspended", "decided", "completed"]
        assert self.store.select_branches(BranchFilter(unannounced=True)) == []
        assert len({key for _, key in told.heard}) == 3

    def test_what_a_lost_worker_did_not_tell_is_told(self, driver: str) -> None:
        """Also where nothing else is left to do."""
        agent = self.clerk(PAY, announcements=[_Told(Lost())])
        with refused(Lost):
            self.drive(driver, agent, "invoke", "Pay")
        silent = self.clerk(PAY)
        self.drive(driver, silent, "invoke", "Pay")  # nobody is to hear of this one
        told = _Told()
        assert self.drive(driver, self.clerk(announcements=[told], name="other"), "recover_all") == []
        assert told.heard == []
        assert self.drive(driver, self.clerk(announcements=[told], store=self.reopened()), "recover_all") == []
        assert told.types == ["suspended"] and len(told.heard) == 1


class _Losing(_Told):
    """Is the end of a worker that announces a decision, before that is carried out."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store

    def on_decided(self, event: object) -> None:
        """The worker is gone."""
        lose(self.store)


class RecoverTests(StoreTests):
    """Tests that the runs of lost workers are recovered."""

    def lost(self, driver: str, agent: Agent[Any, object], verb: str, *args: object, **options: object) -> str:
        """Call a method of the agent whose worker is lost during the call. Return the id of the run."""
        with refused(Lost):
            self.drive(driver, agent, verb, *args, **options)
        for name in WRITES:
            delattr(agent.store, name)
        branch = self.store.branches()[-1]
        assert (branch.status, branch.is_held(self.clock.now)) == ("running", True)
        return branch.id

    def left(self, driver: str, keys: list[Any], *, idempotent: bool = True) -> str:
        """Make a run whose worker was lost in the middle of a tool call. Return its id."""
        store = self.opened() if self.durable else self.store
        return self.lost(
            driver, self.worker(store, keys, call("work", {"n": 5.0}), idempotent=idempotent), "invoke", "Go"
        )

    def worker(self, store: Store, keys: list[Any], *script: Any, idempotent: bool = True) -> Agent[Any, Any]:
        """Make an agent whose tool loses its worker at the first call. `keys` gets the argument of each call."""

        @tool(idempotent=idempotent)
        def work(n: float) -> str:
            """Work."""
            keys.append(n)
            if len(keys) == 1:
                lose(store)
            return f"worked {n}"

        return Agent(name="clerk", model=ScriptedModel(script), tools=[work], store=store)

    def test_a_run_whose_worker_is_lost_is_carried_on_once_its_lease_is_over(self, driver: str) -> None:
        """An idempotent call runs again; nobody touches the run before that."""
        keys: list[Any] = []
        run_id = self.left(driver, keys)
        other = self.worker(self.reopened(), keys, "Done.")
        assert self.drive(driver, other, "recover_all") == []
        with refused(RunBusy):
            self.drive(driver, other, "recover", run_id)
        self.clock.now += self.store.lease
        (done,) = self.drive(driver, other, "recover_all")
        assert (done.run_id, done.branch_id, done.error) == (run_id, run_id, None)
        assert done.result is not None and (done.result.output, keys) == ("Done.", [5.0, 5.0])
        assert branch_of(self.store, run_id).fence > 1
        assert self.drive(driver, other, "recover_all") == []

    def test_a_call_that_may_have_happened_is_put_to_a_human(self, driver: str) -> None:
        """It is found by whoever looks for what waits, and runs again only on their word."""
        keys: list[Any] = []
        run_id = self.left(driver, keys, idempotent=False)
        self.clock.now += self.store.lease
        other = self.worker(self.reopened(), keys, "Done.", idempotent=False)
        (done,) = self.drive(driver, other, "recover_all")
        assert done.result is not None and (done.result.status, keys) == ("suspended", [5.0])
        (waiting,) = self.store.pending(run_id=run_id)
        assert (waiting.approval.why, waiting.approval.args) == ("outcome_unknown", {"n": 5.0})
        assert self.drive(driver, other, "resume", waiting.checkpoint_id, approved=True).output == "Done."
        assert keys == [5.0, 5.0]

    def test_a_run_that_was_decided_and_not_resumed_is_carried_on(self, driver: str) -> None:
        """Its decision counts: it is not asked again."""
        ran: list[Any] = []
        waits = self.drive(driver, self.clerk(PAY), "invoke", "Pay").checkpoint
        store = self.opened() if self.durable else self.store
        agent = self.clerk(store=store, ran=ran, announcements=[_Losing(store)])
        self.lost(driver, agent, "resume", waits, approved=True, by="ann")
        assert (self.store.pending(), ran) == ([], [])
        self.clock.now += self.store.lease
        other = self.clerk("Paid.", store=self.reopened(), ran=ran)
        with refused(CheckpointAlreadyResumed) as caught:
            self.drive(driver, other, "resume", waits, approved=False)
        assert caught.value.progress == "unknown"
        (done,) = self.drive(driver, other, "recover_all")
        assert done.result is not None and (done.result.output, ran) == ("Paid.", [(5.0, "Ann")])
        assert [(record.kind, record.by) for record in self.store.audit()] == [("approve", Principal(id="ann"))]

    def test_a_worker_that_was_taken_for_lost_writes_no_more(self, driver: str) -> None:
        """Its claim has gone to another, and what it did since is not recorded."""
        store = self.store
        waits = self.drive(driver, self.clerk(PAY), "invoke", "Pay").checkpoint
        old = store.append(
            Append(branch_id=waits.run_id, seq=branch_of(store, waits.run_id).seq, take="old", lease=5.0)
        )
        self.clock.now += 5.0
        other = self.reopened()
        done = self.drive(driver, self.clerk("Paid.", store=other), "resume", waits, approved=True)
        assert done.output == "Paid." and branch_of(store, waits.run_id).fence > old.fence

    def test_what_fails_again_is_told_and_keeps_nobody_else_waiting(self, driver: str) -> None:
        """Up to the limit; the rest is for the next time."""
        runs = [self.left(driver, []) for _ in range(4)]
        self.clock.now += self.store.lease
        broken = self.worker(self.reopened(), [0, 1], ModelError("away"), "Done.")
        first = self.drive(driver, broken, "recover_all", limit=2)
        assert [(each.run_id, type(each.error)) for each in first] == [(runs[0], ModelError), (runs[1], type(None))]
        rest = self.drive(driver, self.worker(self.reopened(), [0, 1], "Done.", "Done."), "recover_all")
        assert [each.run_id for each in rest] == runs[2:]
        found = [branch_of(self.store, run_id).status for run_id in runs]
        assert found == ["failed", "completed", "completed", "completed"]


class TrailTests(StoreTests):
    """Tests that the audit trail says who decided what, when, why and through which channel."""

    def test_each_decision_is_a_line_that_stays(self, driver: str) -> None:
        """Approved, edited, rejected; with the digest of what was shown, and without the arguments."""
        waits = self.drive(driver, self.clerk([PAY, SHIP]), "invoke", "Pay", thread_id="t").checkpoint
        one, two = waits.pending
        self.clock.now = 1007.0
        answers = {one.id: Approve(args={"amount": 4.0}), two.id: Reject(reason="too much")}
        who = Principal(id="u1", name="Ann", kind="service")
        self.drive(driver, self.clerk("Done."), "resume", waits, decisions=answers, by=who, channel="web")
        trail = list(self.reopened().audit())
        assert [(record.pending_id, record.kind, record.edited, record.reason) for record in trail] == [
            (one.id, "approve", True, None),
            (two.id, "reject", False, "too much"),
        ]
        for record, shown in zip(trail, (one, two), strict=True):
            assert (record.by, record.channel, record.at.timestamp()) == (who, "web", 1007.0)
            assert (record.run_id, record.branch_id) == (waits.run_id, waits.run_id)
            assert (record.thread_id, record.agent) == ("t", "clerk")
            assert (record.tool_name, record.digest, record.checkpoint_id) == ("pay", shown.digest, waits.id)
            assert AuditRecord.model_validate_json(record.model_dump_json()) == record
            assert "4.0" not in record.model_dump_json() and "7.5" not in record.model_dump_json()
        assert list(self.store.audit(pending_id=two.id)) == trail[1:]
        assert list(self.store.audit(thread_id="t", since=1007.0, until=1007.0)) == trail
        assert list(self.store.audit(since=1007.1)) == list(self.store.audit(run_id="none")) == []
        assert self.store.delete(waits.run_id) is True
        assert list(self.reopened().audit(run_id=waits.run_id)) == trail

    def test_a_checkpoint_that_the_store_never_saw_is_refused(self, driver: str) -> None:
        """Unless its bearer is trusted: then it is taken in, and decided here."""
        elsewhere: Any = self.clerk(PAY, store=self.store.for_tenant("elsewhere"))
        waits: Checkpoint = self.drive(driver, elsewhere, "invoke", "Pay").checkpoint
        trusting = self.clerk("Paid.", store=self.reopened(), trust="bearer")
        assert self.drive(driver, trusting, "resume", waits, approved=True, by="ann").output == "Paid."
        assert [record.pending_id for record in self.store.audit()] == [waits.pending[0].id]
        with refused(CheckpointAlreadyResumed):
            self.drive(driver, trusting, "resume", waits, approved=True)
