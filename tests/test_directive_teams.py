"""What Directive says of several agents, by the number of the behaviour (D15), of the weakness (W4) or of the acceptance scenario
(DIR-A08): at depth 3, in branches side by side, where every call is of another process, on databases.

    desk (an orchestrator) -> works (in parallel) -> chief -> clerk
                                                  -> triage, who hands over to billing -> teller
                                                  -> line (in sequence) -> draft, a function, and sender

Clerk, teller and sender pay, each at depth 3. What was done is counted in a file outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers import Driver, decide_first
from handoff_scenes import to
from nested_scenes import HOUR, Firm, asking, note, passing, tools_of
from places import Place, place_of

from phronomy import (
    Agent,
    Approve,
    Breakpoint,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    ConfigurationError,
    Orchestrator,
    Reject,
    Respond,
    Result,
    Skip,
    Step,
    Store,
    parallel,
    sequential,
)
from phronomy.models.base import ModelRequest
from phronomy.testing import ScriptedModel, call

pytestmark = [pytest.mark.unmeasured, pytest.mark.worlds(1)]

PAID = {"chief": "paid ann 10", "triage": "paid bob 10", "line": "paid go+ 10"}
"""What a run comes to that is let go on everywhere."""

DONE = ["draft go 0", "pay ann 10", "pay bob 10", "pay go+ 10"]
"""And what is done in it."""


class Died(BaseException):
    """The worker is no more."""


class Team(Firm):
    """The desk, built anew over a store that is opened anew, for everything that it is to do."""

    def __init__(self, driver: Driver, place: Place) -> None:
        super().__init__(driver, place)
        self.draw = self.team
        self.dies = False

    def team(self, store: Store | None) -> Any:
        pay, _ = tools_of(self.driver, self.effect, **self.options)

        def draft(value: str) -> str:
            note(self.file, f"draft {value} 0 -")
            if self.dies:
                raise Died
            return f"{value}+"

        def payer(name: str) -> Agent[Any, Any]:
            return Agent(name=name, model=passing(lambda who: call("pay", {"who": who})), tools=[pay])

        chief = asking(payer("clerk"), passing(call("clerk", {"input": "ann"})), name="chief")
        bills: Any = ["not me", lambda request: call("teller", {"input": last(request).splitlines()[-1]}), last]
        billing = asking(payer("teller"), ScriptedModel.by_turn(bills), name="billing", description="For bills.")
        triage: Agent[Any, Any] = Agent(
            name="triage", model=ScriptedModel.by_turn([to("billing", "bob"), "alone"]), handoffs=[billing]
        )
        line = sequential(Step(self.driver.function(draft), idempotent=True), payer("sender"), name="line")
        works = parallel(chief, triage, line, name="works")
        host: Agent[Any, Any] = Agent(name="host", model=ScriptedModel([]))
        return Orchestrator([host], patterns={"works": works}, entry="works", store=store, name="desk")

    def answer(self, at: Result[Any] | Checkpoint, answers: dict[str, Any], **options: Any) -> Result[Any]:
        """Answer what these agents wait for, in another process, which is told the id of the checkpoint."""
        checkpoint = at.checkpoint if isinstance(at, Result) else at
        ids = {item.agent: item.id for item in checkpoint.pending}
        assert len(ids) == len(checkpoint.pending)
        return self.resume(checkpoint.id, decisions={ids[who]: answer for who, answer in answers.items()}, **options)

    def let_go(self, result: Result[Any], **options: Any) -> Result[Any]:
        """Approve all that waits, each time in another process, until nothing does."""
        while result.suspended:
            result = self.resume(result.checkpoint.id, decisions=decide_first(result.checkpoint), **options)
        return result


def last(request: ModelRequest) -> str:
    """The text of the last message."""
    return request.messages[-1].text


def waits(at: Result[Any] | Checkpoint) -> dict[str | None, str | None]:
    """Who waits, and at which point, or for an approval."""
    checkpoint = at if isinstance(at, Checkpoint) else at.checkpoint
    found = {item.agent: item.point if item.why == "breakpoint" else item.why for item in checkpoint.pending}
    assert len(found) == len(checkpoint.pending)
    return found


def depths(at: Result[Any]) -> dict[str | None, int]:
    """How deep each of them is."""
    return {item.agent: item.path.count("/") + 1 for item in at.checkpoint.pending}


@pytest.fixture(params=("sqlite", "postgres"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_of(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def desk(driver: Driver, place: Place) -> Team:
    return Team(driver, place)


@pytest.fixture
def free(desk: Team) -> Team:
    """A desk where nobody needs an approval."""
    desk.options = {"requires_approval": False, "approval_timeout": None}
    return desk


ALL = {"clerk": "approval", "teller": "approval", "sender": "approval"}
"""Where a run stands that is stopped by approvals alone."""


# Several at once


def test_one_of_those_who_are_stopped_at_once_goes_on_alone(desk: Team) -> None:
    """DIR-A08, D15: at an approval and at a breakpoint; who is answered proceeds, and pending shows the others, as they were."""
    stop = [Breakpoint("pre_model_call", agents=["sender"])]
    first = desk.invoke(breakpoints=stop)
    assert waits(first) == {"clerk": "approval", "teller": "approval", "sender": "pre_model_call"}
    assert depths(first) == dict.fromkeys(ALL, 3)
    before = {item.agent: item for item in first.checkpoint.pending}

    half = desk.answer(first, {"clerk": Approve()}, breakpoints=stop)
    assert desk.done == ["draft go 0", "pay ann 10"]
    assert {item.agent: item for item in half.checkpoint.pending} == {who: before[who] for who in ("teller", "sender")}
    assert {row.pending_id for row in desk.store().pending_rows()} == {before["teller"].id, before["sender"].id}
    with pytest.raises(CheckpointAlreadyResumed):
        desk.answer(first, {"clerk": Approve()})

    let = desk.answer(half, {"sender": Approve()}, breakpoints=stop)
    assert (waits(let), desk.done) == ({"teller": "approval", "sender": "approval"}, ["draft go 0", "pay ann 10"])
    done = desk.let_go(let, breakpoints=[])
    assert (done.status, done.output, desk.done) == ("completed", PAID, DONE)
    desk.check_histories(done.checkpoint)


def test_both_are_answered_from_the_checkpoint_at_which_they_were_asked(desk: Team) -> None:
    """D15: by people who saw the same, and the last one first."""
    first = desk.invoke()
    for who in ("sender", "teller", "clerk"):
        result = desk.answer(first, {who: Approve()})
    assert (result.status, result.output, desk.done) == ("completed", PAID, DONE)


# Filters


@pytest.mark.parametrize(
    ("stop", "stood", "left"),
    [
        (Breakpoint("pre_agent_run", agents=["clerk"]), {"clerk": "pre_agent_run"}, ["pay ann 10"]),
        (
            Breakpoint("pre_pattern_step", patterns=["line"], nodes=["sender"]),
            {"line": "pre_pattern_step"},
            ["pay go+ 10"],
        ),
    ],
    ids=["agent", "pattern"],
)
def test_a_filter_is_one(free: Team, stop: Breakpoint, stood: dict[str, str], left: list[str]) -> None:
    """DIR-A12, W6: narrowed to an agent or to a pattern, all the others run without a stop, and there is one stop, once."""
    first = free.invoke(breakpoints=[stop])
    assert (waits(first), free.done) == (stood, [line for line in DONE if line not in left])
    done = free.let_go(first, breakpoints=[stop])
    assert (done.output, free.done) == (PAID, DONE)
    assert len(list(free.store().audit(run_id=done.run_id))) == len(stood)


def test_a_filter_for_nobody_is_refused(free: Team) -> None:
    """W6: what no agent and no pattern of the team is named stops nothing, and is said before anything runs."""
    for wrong in (Breakpoint("*", agents=["nobody"]), Breakpoint("pre_pattern_step", patterns=["chief"])):
        with pytest.raises(ConfigurationError, match="named"):
            free.invoke(breakpoints=[wrong])
    assert (free.done, free.store().branches()) == ([], [])


# Steps and handoffs


def test_a_step_that_is_skipped_inside_passes_its_input_on(free: Team) -> None:
    """DIR-A14, D21: the second step gets what the first one was given; with the second skipped as well, it is what comes of it."""
    stop = [Breakpoint("pre_pattern_step", patterns=["line"])]
    first = free.invoke(breakpoints=stop)
    [item] = first.checkpoint.pending
    assert (item.tool_name, item.args, item.point) == ("draft", {"arg": "go"}, "pre_pattern_step")
    assert free.done == ["pay ann 10", "pay bob 10"]
    second = free.answer(first, {"line": Skip()}, breakpoints=stop)
    [item] = second.checkpoint.pending
    assert (item.tool_name, item.args) == ("sender", {"arg": "go"})
    forked = free.driver.fork(free.agent(), second.checkpoint.id)
    done = free.answer(second, {"line": Approve()}, breakpoints=stop)
    assert (done.output, free.done) == (PAID | {"line": "paid go 10"}, ["pay ann 10", "pay bob 10", "pay go 10"])
    both = free.answer(forked, {"line": Skip()}, breakpoints=stop)
    assert (both.output, len(free.done)) == (PAID | {"line": "go"}, 3)


@pytest.mark.parametrize(
    ("answer", "says", "handoffs"),
    [
        (Skip(), "alone", []),
        (Approve(args={"message": "eve"}), "paid eve 10", [("triage", "billing")]),
    ],
    ids=["skip", "edit"],
)
def test_a_handoff_inside_a_branch(free: Team, answer: Any, says: str, handoffs: list[tuple[str, str]]) -> None:
    """DIR-A15, D20: it stops before it is on record; skipped, there is none and the target never runs; edited, it is what comes."""
    stop = [Breakpoint("pre_handoff")]
    first = free.invoke(breakpoints=stop)
    team: Any = free.agent()
    [hit] = team.stopped_at(first.checkpoint)
    assert (hit.type, hit.agent, hit.tool, hit.args) == (
        "pre_handoff",
        "triage",
        "transfer_to_billing",
        {"message": "bob"},
    )
    assert team.local_state(first.checkpoint.id).handoff_count == 0
    assert free.done == ["draft go 0", "pay ann 10", "pay go+ 10"]
    done = free.answer(first, {"triage": answer}, breakpoints=stop)
    assert (done.status, done.output) == ("completed", PAID | {"triage": says})
    made = free.agent().local_state(done.checkpoint.id).handoffs  # type: ignore[attr-defined]
    assert [(each.source, each.target) for each in made] == handoffs
    asked = {row.agent.name for row in free.runs(done.checkpoint).values()}
    assert ("teller" in asked) is bool(handoffs)
    assert free.done == sorted([*DONE[:2], *(["pay " + says.removeprefix("paid ")] if handoffs else []), DONE[3]])
    free.check_histories(done.checkpoint)


# Workers that die


@pytest.mark.parametrize("when", ["at the start", "behind a stop"])
def test_a_step_that_ran_when_its_worker_died_runs_again(desk: Team, when: str) -> None:
    """DIR-A24, W12: nothing joins without it; what waited beside it still waits, and completes."""
    stop = [Breakpoint("pre_pattern_step", nodes=["draft"])]
    begun = desk.invoke(breakpoints=stop) if when == "behind a stop" else None
    desk.dies = True
    work = desk.invoke if begun is None else partial(desk.answer, begun, {"line": Approve()})
    with pytest.raises(Died):
        work()
    assert desk.done == ["draft go 0"]
    desk.dies, desk.later = False, HOUR / 2
    [branch] = desk.store().branches()
    result = desk.recover(branch.id)
    assert (waits(result), desk.done) == (ALL, ["draft go 0"] * 2)
    done = desk.let_go(result)
    assert (done.output, desk.done) == (PAID, ["draft go 0", *DONE])
    desk.check_histories(done.checkpoint)


# Refusals


def test_a_refusal_of_a_step_ends_the_whole(desk: Team) -> None:
    """W4: inside one branch, by `then="end"`: nothing that waited runs any more, nobody is asked again, nobody else does it."""
    first = desk.invoke()
    result = desk.answer(first, {"sender": Reject(reason="no", then="end")}, by="ann")
    assert (result.status, result.checkpoint.pending, desk.done) == ("rejected", (), ["draft go 0"])
    assert desk.store().pending_rows() == []
    for other in ALL:
        with pytest.raises(CheckpointError):
            desk.answer(first, {other: Approve()})
    trail = [(each.kind, each.by and each.by.id, each.path) for each in desk.store().audit(run_id=first.run_id)]
    [item] = [item for item in first.checkpoint.pending if item.agent == "sender"]
    assert ("reject", "ann", item.path) in trail
    assert {kind for kind, _, _ in trail} <= {"reject", "cancel"}
    assert (desk.driver.call(desk.agent(), "recover_all"), desk.done) == ([], ["draft go 0"])


def test_a_refusal_inside_a_tool_of_an_agent_ends_the_whole(desk: Team) -> None:
    """W4: two levels down, and it is the run that the human saw: the branches beside it run no more."""
    first = desk.invoke()
    done = desk.answer(first, {"clerk": Reject(reason="no", then="end")})
    assert (done.status, done.checkpoint.pending, desk.done) == ("rejected", (), ["draft go 0"])
    assert desk.store().pending_rows() == []
    assert (desk.driver.call(desk.agent(), "recover_all"), desk.done) == ([], ["draft go 0"])


def test_what_is_refused_for_good_is_done_by_nobody(desk: Team) -> None:
    """W4: a call that is blocked in one branch is not made in another, whose agent would have made the same one later."""
    stop = [Breakpoint("pre_pattern_step", patterns=["line"])]
    first = desk.invoke("ann", breakpoints=stop)
    behind = desk.answer(first, {"line": Skip()}, breakpoints=stop)
    blocked = desk.answer(behind, {"clerk": Reject(reason="never", then="block")}, breakpoints=stop)
    assert waits(blocked) == {"teller": "approval", "line": "pre_pattern_step"}
    let = desk.answer(blocked, {"line": Approve()})
    assert waits(let) == {"teller": "approval"}
    done = desk.let_go(let)
    assert (done.status, desk.done) == ("completed", ["pay bob 10"])
    assert "rejected" in done.output["line"]


def test_what_waits_already_is_a_request_of_its_own(desk: Team) -> None:
    """W4: two branches ask for the same, and it is blocked in one: the other waits on, and runs for a human alone."""
    stop = [Breakpoint("pre_handoff")]
    first = desk.invoke(breakpoints=stop)
    same = desk.answer(first, {"triage": Approve(args={"message": "ann"})})
    assert waits(same) == ALL
    result = desk.answer(same, {"clerk": Reject(then="block")})
    assert (waits(result), desk.done) == ({"teller": "approval", "sender": "approval"}, ["draft go 0"])
    result = desk.answer(result, {"sender": Approve()})
    assert (waits(result), desk.done) == ({"teller": "approval"}, ["draft go 0", "pay go+ 10"])
    done = desk.answer(result, {"teller": Reject()})
    assert (done.status, desk.done) == ("completed", ["draft go 0", "pay go+ 10"])


# Every decision in an agent that is a step

ANSWERS: dict[str, tuple[Any, str, list[str]]] = {
    "approve": (Approve(), "paid go+ 10", ["pay go+ 10"]),
    "edit": (Approve(args={"who": "go+", "amount": 99}), "paid go+ 99", ["pay go+ 99"]),
    "reject": (Reject(reason="no"), "Reason: no", []),
    "respond": (Respond(content="by hand"), "by hand", []),
    "skip": (Skip(), "left this call out", []),
    "expire": (None, "Nobody decided on this call in time", []),
}


@pytest.mark.parametrize("kind", [kind for kind in ANSWERS if kind != "skip"])
def test_every_decision_on_an_approval_counts(desk: Team, kind: str) -> None:
    """W8, D20: the agent is a step of a pattern, at depth 3; the others are decided as well, and it is on record once."""
    answer, says, paid = ANSWERS[kind]
    first = desk.invoke()
    assert waits(first) == ALL
    half = desk.answer(first, {"clerk": Approve(), "teller": Approve()})
    assert (waits(half), desk.done) == ({"sender": "approval"}, DONE[:3])
    if answer is None:
        desk.later = 2 * HOUR
        done = desk.recover(half.checkpoint.id)
    else:
        done = desk.answer(half, {"sender": answer}, by="ann")
    assert (done.status, done.checkpoint.pending, desk.done) == ("completed", (), [*DONE[:3], *paid])
    assert says in done.output["line"]
    assert {who: done.output[who] for who in ("chief", "triage")} == {"chief": "paid ann 10", "triage": "paid bob 10"}
    [item] = half.checkpoint.pending
    trail = [each for each in desk.store().audit(run_id=first.run_id) if each.pending_id == item.id]
    assert [(each.kind, each.by and each.by.id, each.path) for each in trail] == [
        ({"edit": "approve"}.get(kind, kind), "ann" if answer else None, item.path)
    ]
    desk.check_histories(done.checkpoint)


@pytest.mark.parametrize("kind", [kind for kind in ANSWERS if kind != "expire"])
def test_every_decision_at_a_breakpoint_counts(free: Team, kind: str) -> None:
    """W8: a point of an agent that is a step of a pattern fires, and what is said there is what happens, to it alone."""
    answer, says, paid = ANSWERS[kind]
    stop = [Breakpoint("pre_tool_call", agents=["sender"])]
    first = free.invoke(breakpoints=stop)
    assert (waits(first), depths(first)) == ({"sender": "pre_tool_call"}, {"sender": 3})
    assert free.done == DONE[:3]
    done = free.answer(first, {"sender": answer}, breakpoints=stop)
    assert (done.status, free.done) == ("completed", [*DONE[:3], *paid])
    assert says in done.output["line"]
    free.check_histories(done.checkpoint)


@pytest.mark.parametrize("stop", [[], [Breakpoint("pre_pattern_step", nodes=["draft"])]], ids=["approval", "task"])
def test_a_team_is_cancelled_while_it_waits(desk: Team, stop: list[Breakpoint]) -> None:
    """W8: with agents at approvals inside, and before a step that is a plain function: it stops there, and breaks nothing."""
    first = desk.invoke(breakpoints=stop)
    assert waits(first) == (
        ALL if not stop else {"clerk": "approval", "teller": "approval", "line": "pre_pattern_step"}
    )
    half = desk.answer(first, {"clerk": Approve()}, breakpoints=stop)
    result = desk.cancel(half.checkpoint.id, by="eve", reason="enough")
    done = [*([] if stop else ["draft go 0"]), "pay ann 10"]
    assert (result.status, result.checkpoint.pending, desk.done) == ("cancelled", (), done)
    assert desk.store().pending_rows() == []
    with pytest.raises(CheckpointError):
        desk.answer(half, {"teller": Approve()})
    assert {each.kind for each in desk.store().audit(run_id=first.run_id)} == {"approve", "cancel"}
    assert desk.done == done
