"""Patterns stop for humans: in the middle of each kind, at each step, on both drivers, streamed and not, on every store.

The ids in docstrings are of Directive's behaviours (D21), weaknesses (W8) and scenarios (DIR-A14).
"""

from __future__ import annotations

import ast
import re
from functools import partial
from pathlib import Path
from typing import Any

import pattern_worker
import pytest
from drivers import DRIVERS, Driver, decide_first, open_kind, run
from pattern_scenes import SCENES, kinds, payer, plain, says, waits
from selection import scaled
from stop_scenes import EVERY, desk, elsewhere, holding, stops_of, walk

from phronomy import (
    Approve,
    Breakpoint,
    BreakpointContext,
    Breakpoints,
    CheckpointError,
    ConfigurationError,
    DagNode,
    InvalidDecision,
    Pattern,
    Reject,
    Respond,
    Result,
    Skip,
    SQLiteStore,
    Step,
    Store,
    dag,
    interrupt,
    parallel,
    sequential,
)
from phronomy.testing.crash import sweep

ROWS = {
    *(f"D{number}" for number in (9, 10, 21, 37, *range(44, 52))),
    "W4",
    "W6",
    "W8",
    "W12",
    "W13",
    "DIR-A14",
    "DIR-A24",
}
"""What these tests pin, by the numbers of Directive's behaviours, weaknesses and scenarios."""


def test_every_row_has_a_test() -> None:
    """A row is met by a test whose docstring begins with its number."""
    told: set[str] = set()
    for path in sorted(Path(__file__).parent.glob("test_patterns*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                told |= set(re.findall(r"\b(?:DIR-A|D|W)\d+\b", (ast.get_docstring(node) or "").partition(":")[0]))
    assert told == ROWS


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


STEP = [Breakpoint("pre_pattern_step")]


def approve_all(driver: Driver, pattern: Pattern[Any], result: Result[Any], *, last_first: bool = False) -> Result[Any]:
    """Approve all that is pending, one by one, each from the checkpoint at which it was asked."""
    asked = result.checkpoint
    pending = asked.pending[::-1] if last_first else asked.pending
    for item in pending:
        result = driver.resume(pattern, asked, decisions={item.id: Approve()}, by="ada")
    return result


# In the middle of each


@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize("kind", [kind for kind in SCENES if kind != "race"])
@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_pattern_stops_in_the_middle_and_goes_on_anywhere(
    driver: Driver, kind: str, where: str, last_first: bool, tmp_path: Path
) -> None:
    """D51: parallel steps too. Approvals inside agents are answered in any order, by objects made anew, each payment made once."""
    scene, paid = SCENES[kind], []
    with open_kind(where, tmp_path) as store:
        result = driver.invoke(scene.make(driver, store, paid), "go")
        for names in scene.pays:
            assert (result.status, waits(result)) == ("suspended", list(names))
            before = [paid.count(name) for name in names]
            with open_kind(where, tmp_path) if where == "sqlite" else _same(store) as other:
                pattern = scene.make(driver, other, paid)
                assert other.load(result.checkpoint.id) == result.checkpoint
                result = approve_all(driver, pattern, result, last_first=last_first)
            assert [paid.count(name) for name in names] == [count + 1 for count in before]
    assert (result.status, result.output) == ("completed", scene.output)
    assert sum(paid.count(name) for name in ("ann", "bob")) == sum(map(len, scene.pays))


class _same:
    """The same store, in the place of one that is opened anew."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *_: object) -> None:
        return None


@pytest.mark.parametrize("kind", SCENES)
def test_a_refusal_is_terminal(driver: Driver, kind: str, store: Store) -> None:
    """W4: nothing is retried, nobody else does the work, and nothing that waited runs any more."""
    scene, paid = SCENES[kind], []
    pattern = scene.make(driver, store, paid)
    first = driver.invoke(pattern, "go")
    before = list(paid)
    asked = first.checkpoint
    result = driver.resume(pattern, asked, decisions={asked.pending[0].id: Reject(reason="no", then="end")}, by="ada")
    assert (result.status, paid, result.checkpoint.pending) == ("rejected", before, ())
    assert store.pending_rows() == []
    assert [item.kind for item in result.checkpoint.decisions] == ["reject"]
    for item in asked.pending:
        with pytest.raises(CheckpointError):
            driver.resume(pattern, asked, decisions={item.id: Approve()})
    assert paid == before


@pytest.mark.parametrize("kind", SCENES)
def test_a_step_that_is_rejected_at_its_breakpoint_ends_the_pattern(driver: Driver, kind: str, store: Store) -> None:
    scene, paid = SCENES[kind], []
    pattern = scene.make(driver, store, paid)
    asked = driver.invoke(pattern, "go", breakpoints=STEP).checkpoint
    result = driver.resume(pattern, asked, decisions=decide_first(asked, Reject()), breakpoints=STEP)
    assert (result.status, paid, result.checkpoint.pending, result.checkpoint.nested) == ("rejected", [], (), ())


@pytest.mark.parametrize("kind", SCENES)
def test_a_pattern_is_cancelled_while_it_waits(driver: Driver, kind: str, store: Store) -> None:
    scene, paid = SCENES[kind], []
    pattern = scene.make(driver, store, paid)
    asked = driver.invoke(pattern, "go")
    before = list(paid)
    result = driver.cancel(pattern, asked.run_id, reason="enough")
    assert (result.status, paid, store.pending_rows()) == ("cancelled", before, [])


def test_a_refusal_that_the_model_is_told_of_goes_on(driver: Driver, store: Store) -> None:
    """A rejection inside an agent, without `then="end"`, is told to its model, as anywhere: the agent has its say."""
    paid: list[str] = []
    pattern = SCENES["sequential"].make(driver, store, paid)
    asked = driver.invoke(pattern, "go").checkpoint
    result = driver.resume(pattern, asked, approved=False)
    assert (result.output, "ann" in paid) == ("ann paid+file", False)


def test_a_refusal_is_no_failure_to_be_tolerated(driver: Driver, store: Store) -> None:
    """W4: neither `on_error` nor `min_success` makes anything of it."""
    paid: list[str] = []
    end = Reject(then="end")
    for pattern in (
        sequential(payer("ann", paid), payer("bob", paid), on_error="skip", store=store),
        parallel(payer("ann", paid), plain("c", [], driver), min_success=1, store=store),
        dag({"a": payer("ann", paid), "b": DagNode(payer("bob", paid), ["a"])}, on_error="continue", store=store),
    ):
        asked = driver.invoke(pattern, "go").checkpoint
        assert len(asked.pending) == 1
        result = driver.resume(pattern, asked, decisions={asked.pending[0].id: end})
        assert (result.status, paid) == ("rejected", [])


def test_what_lapses_ends_a_pattern_as_cancelled(driver: Driver, tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = SQLiteStore(tmp_path / "runs.db", clock=lambda: now[0])
    ran: list[str] = []
    gated = Step(plain("a", ran, driver), requires_approval=True, approval_timeout=60)
    pattern = sequential(gated, plain("b", ran, driver), store=store)
    asked = driver.invoke(pattern, "x")
    now[0] += 61
    [done] = driver.call(pattern, "recover_all")
    assert (done.result.status, ran) == ("cancelled", [])
    assert asked.suspended


def test_a_step_may_need_an_approval_of_its_own(driver: Driver, store: Store) -> None:
    """What is shown is the input of the step; an edit is what it runs with; a human may stand in for it."""
    ran: list[Any] = []

    def send(value: Any) -> Any:
        ran.append(value)
        return "sent"

    gated = Step(driver.function(send), requires_approval=lambda value: value != "small", risk="high")
    pattern = sequential(plain("a", [], driver), gated, plain("z", [], driver), store=store)
    asked = driver.invoke(pattern, "x").checkpoint
    [item] = asked.pending
    assert (item.why, item.args, item.tool.risk) == ("approval", {"arg": "x+a"}, "high")
    assert driver.resume(pattern, asked, approved=True).output == "sent+z"
    edited = driver.fork(pattern, asked)
    answer = {edited.pending[0].id: Approve(args={"arg": {"to": "ann"}})}
    assert driver.resume(pattern, edited, decisions=answer).output == "sent+z"
    assert ran == ["x+a", {"to": "ann"}]
    for content, said in (("by hand", "by hand+z"), ({"n": 1}, {"from": "z", "got": {"n": 1}})):
        forked = driver.fork(pattern, asked)
        result = driver.resume(pattern, forked, decisions={forked.pending[0].id: Respond(content=content)})
        assert result.output == said
    with pytest.raises(InvalidDecision, match="nothing else"):
        driver.resume(pattern, edited_args := driver.fork(pattern, asked), decisions={
            edited_args.pending[0].id: Approve(args={"state": {}})
        })  # fmt: skip
    assert len(ran) == 2
    assert driver.invoke(sequential(gated), "small").output == "sent"


def test_a_question_inside_a_step(driver: Driver, store: Store) -> None:
    def ask(value: Any) -> Any:
        return f"{value} {interrupt('when?', answer=str)}"

    pattern = parallel(driver.function(ask), plain("b", [], driver), store=store)
    asked = driver.invoke(pattern, "come").checkpoint
    result = driver.resume(pattern, asked, decisions={asked.pending[0].id: Respond(content="now")})
    assert result.output == {"ask": "come now", "b": "come+b"}


def test_a_stop_deep_inside_is_answered_from_the_root(driver: Driver, store: Store) -> None:
    paid: list[str] = []
    inner = sequential(payer("ann", paid), plain("b", paid, driver), name="inner")
    middle = parallel(inner, payer("bob", paid), merge=lambda found: found["inner"], name="middle")
    outer = sequential(plain("a", paid, driver), middle, plain("z", paid, driver), name="outer", store=store)
    asked = driver.invoke(outer, "x").checkpoint
    assert [item.args for item in asked.pending] == [{"to": "ann"}, {"to": "bob"}]
    assert [item.path for item in outer.stop_of(asked).pending] == [
        ("middle", "inner", "ann", "pay"),
        ("middle", "bob", "pay"),
    ]
    assert [item.path.count("/") for item in asked.pending] == [2, 1]
    half = driver.resume(outer, asked, decisions={asked.pending[0].id: Approve()})
    assert (half.suspended, paid) == (True, ["a", "ann", "b"])
    assert approve_all(driver, outer, half).output == "ann paid+b+z"
    again = driver.invoke(outer, "x").checkpoint
    rejected = driver.resume(outer, again, decisions={again.pending[0].id: Reject(then="end")})
    assert (rejected.status, rejected.checkpoint.pending) == ("rejected", ())


# Steps as boundaries


@pytest.mark.parametrize("kind", SCENES)
def test_every_step_of_every_pattern_is_a_boundary(driver: Driver, kind: str, store: Store) -> None:
    """D21: not those of a sequence alone; each stop is let go on once, with an approval where one is due."""
    scene, paid = SCENES[kind], []
    pattern = scene.make(driver, store, paid)
    result = driver.invoke(pattern, "go", breakpoints=STEP)
    stood: list[str] = []
    while result.suspended:
        hits = pattern.stopped_at(result.checkpoint)
        for hit in hits:
            assert (hit.type, hit.agent, hit.before, hit.path) == ("pre_pattern_step", "team", True, "")
            stood.append(hit.node or "")
        ids = [hit.id for hit in hits] or [result.checkpoint.pending[0].id]
        result = driver.resume(pattern, result.checkpoint, decisions=dict.fromkeys(ids, Approve()), breakpoints=STEP)
    ran = [step for step, ended in kinds(pattern, result) if ended == "completed"]
    assert result.output == scene.output
    assert sorted(stood) == sorted(["ann", "bob"] if kind == "race" else ran)


def test_a_skipped_step_passes_its_input_on(driver: Driver, store: Store) -> None:
    """DIR-A14, D21: the second step gets the original input; if all are skipped, it is the output, and no error."""
    log: list[str] = []
    pattern = sequential(plain("a", log, driver), says("b", "B"), plain("c", log, driver), store=store)
    paused = driver.invoke(pattern, {"q": [1]}, breakpoints=STEP).checkpoint
    result = driver.resume(pattern, paused, decisions={paused.pending[0].id: Skip()}, breakpoints=STEP)
    [item] = result.checkpoint.pending
    assert ((item.tool_name, item.args), log) == (("b", {"arg": {"q": [1]}}), [])
    while result.suspended:
        skip = {result.checkpoint.pending[0].id: Skip()}
        result = driver.resume(pattern, result.checkpoint, decisions=skip, breakpoints=STEP)
    assert (result.status, result.output, log) == ("completed", {"q": [1]}, [])
    assert kinds(pattern, result) == [(name, "skipped") for name in "abc"]


def test_what_a_skip_means_elsewhere(driver: Driver, store: Store) -> None:
    paid: list[str] = []

    def skip_once(kind: str, step: str) -> Any:
        pattern = SCENES[kind].make(driver, store, paid)
        stop = [Breakpoint("pre_pattern_step", nodes=[step])]
        result = driver.invoke(pattern, "go", breakpoints=stop)
        while not (hits := pattern.stopped_at(result.checkpoint)):
            ask = result.checkpoint.pending[0].id
            result = driver.resume(pattern, result.checkpoint, decisions={ask: Approve()}, breakpoints=stop)
        result = driver.resume(pattern, result.checkpoint, decisions={hits[0].id: Skip()})
        while result.suspended:
            result = approve_all(driver, pattern, result)
        return result.output

    assert skip_once("parallel", "ann") == {"ann": "go", "bob": "bob paid", "note": "go+note"}
    assert skip_once("supervisor", "boss") == "go"
    assert skip_once("dag", "ann")["got"]["ann"] == {"read": "go+read"}
    assert skip_once("reflect", "critic") == "ann paid"
    assert skip_once("race", "ann") == "bob paid"


def test_the_input_of_a_step_is_edited_at_its_breakpoint(driver: Driver, store: Store) -> None:
    """D9: what it is given is what was said there, also by a call that is held."""
    heard: list[Any] = []

    def look(value: Any) -> Any:
        heard.append(value)
        return value

    pattern = sequential(driver.function(look), driver.function(look), store=store)
    stop = [Breakpoint("pre_pattern_step", when="args['arg'] == 'x'", nodes=["look_2"])]
    paused = driver.invoke(pattern, "x", breakpoints=stop).checkpoint
    edit = {paused.pending[0].id: Approve(args={"arg": "y"})}
    assert driver.resume(pattern, paused, decisions=edit, breakpoints=stop).output == "y"
    assert heard == ["x", "y"]


def test_a_held_call_waits_at_a_step(driver: Driver, store: Store) -> None:
    pattern = sequential(plain("a", [], driver), plain("b", [], driver), store=store)
    hold, arrivals = holding()
    stop = [Breakpoint("pre_pattern_step", nodes=["b"])]
    with elsewhere(lambda: driver.invoke(pattern, "x", breakpoints=stop, hold=hold)) as held:
        id = arrivals.next().id
        if driver.is_async:
            run(hold.aresume_breakpoint(id, input="y"))
        else:
            hold.resume_breakpoint(id, input="y")
        assert held.result().output == "y+b"


def test_one_stop_at_a_step_and_in_what_order(driver: Driver, store: Store) -> None:
    """The point of the pattern comes before that of the node; the step is let go on once."""
    pattern = sequential(plain("a", [], driver), plain("b", [], driver), store=store)
    both: list[Any] = [Breakpoint("pre_node"), Breakpoint("pre_pattern_step", nodes=["a"])]
    result, stood = walk(driver, pattern, "x", breakpoints=both)
    assert (stood, result.output) == (["pre_pattern_step", "pre_node"], "x+a+b")


def test_a_breakpoint_is_narrowed_to_patterns(driver: Driver, store: Store) -> None:
    """W6: the filter is one; a name that no pattern has is refused, before anything runs and where it is added later."""
    log: list[str] = []
    inner = sequential(plain("a", log, driver), plain("b", log, driver), name="inner")
    outer = sequential(inner, plain("c", log, driver), name="outer", store=store)
    seen: list[BreakpointContext] = []

    def look(here: BreakpointContext) -> bool:
        seen.append(here)
        return True

    live = Breakpoints([Breakpoint("pre_pattern_step", when=look, patterns=["inner"], label="in")])
    result, stood = walk(driver, outer, "x", breakpoints=live)
    assert (stood, result.output) == (["pre_pattern_step"] * 2, "x+a+b+c")
    assert {(here.pattern, here.agent) for here in seen} == {("inner", "inner")}
    assert [(here.node, here.args) for here in seen] == [("a", {"arg": "x"}), ("b", {"arg": "x+a"})]
    for wrong in (Breakpoint("pre_pattern_step", patterns=["other"]), Breakpoint("pre_handoff")):
        with pytest.raises(ConfigurationError):
            driver.invoke(outer, "x", breakpoints=[wrong])
    with pytest.raises(ConfigurationError, match="its patterns are inner, outer"):
        live.add(Breakpoint("*", patterns=["other"]))
    with pytest.raises(ConfigurationError, match="ever comes to pre_pattern_step"):
        driver.invoke(desk(store), "go", breakpoints=STEP)
    assert stops_of(driver.invoke(outer, "x", breakpoints=[Breakpoint("post_run", patterns=["inner"])])) == ["post_run"]


def test_the_points_of_an_agent_in_a_step_and_a_function_as_a_step(driver: Driver, store: Store) -> None:
    """W8: points inside an agent fire where it is a step; a breakpoint at a function is a stop like any other."""
    pattern = sequential(plain("task", [], driver), desk(None), store=store)
    stops = [Breakpoint("pre_agent_run"), Breakpoint("tool"), Breakpoint("pre_pattern_step", nodes=["task"])]
    result, stood = walk(driver, pattern, "go", breakpoints=stops)
    assert (stood, result.output) == (["pre_pattern_step", "pre_agent_run", "pre_tool_call"], "done")


def test_an_agent_that_is_skipped_inside_its_step_passes_its_input_on(driver: Driver, store: Store) -> None:
    """D10: nothing of it ran, so what came to it goes on."""
    pattern = sequential(desk(None), plain("b", [], driver), store=store)
    paused = driver.invoke(pattern, "go", breakpoints=[Breakpoint("pre_agent_run")]).checkpoint
    assert driver.resume(pattern, paused, decisions={paused.pending[0].id: Skip()}).output == "go+b"


# Elsewhere, and again


@pytest.mark.parametrize("kind", [kind for kind in SCENES if kind != "race"])
def test_a_suspended_pattern_is_forked(driver: Driver, kind: str, store: Store) -> None:
    """D49: what is done is not done again in the fork, and both branches end, each with approvals of its own."""
    scene, paid = SCENES[kind], []
    pattern = scene.make(driver, store, paid)
    asked = driver.invoke(pattern, "go")
    fork = driver.fork(pattern, asked.checkpoint, label="other")
    assert {item.id for item in fork.pending}.isdisjoint(item.id for item in asked.checkpoint.pending)
    for start in (asked.checkpoint, fork):
        result: Result[Any] = Result(status="suspended", checkpoint=start)
        while result.suspended:
            result = approve_all(driver, pattern, result)
        if kind != "reflect":  # its critic counts over both
            assert result.output == scene.output


@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["sequential", "dag", "supervisor", "debate", "goal"])
@pytest.mark.parametrize("name", DRIVERS, ids=str)
def test_a_pattern_that_is_killed_anywhere_ends_as_one_that_was_not(kind: str, name: Driver, tmp_path: Path) -> None:
    """W12, DIR-A24: what ran when its worker died runs again, and nothing joins without it; no payment is made twice."""
    play = partial(pattern_worker.play, kind=kind, driver=str(name))
    report = sweep(
        play,
        store=f"sqlite:///{tmp_path}/runs.db?synchronous=normal",
        check=partial(pattern_worker.check, kind),
        every=scaled(16, sweep=4),
    )
    assert report.kills > scaled(1, sweep=5)


def test_a_dag_goes_on_with_what_was_running(driver: Driver, store: Store) -> None:
    """DIR-A24: x was running when its process died, and y was to come; x is run again, and y completes."""
    ran: list[str] = []

    class Died(BaseException):
        pass

    def x(value: Any) -> Any:
        ran.append("x")
        if len(ran) == 1:
            raise Died
        return "x"

    pattern = dag(
        {"x": Step(driver.function(x), idempotent=True), "y": DagNode(driver.function(lambda given: given), ["x"])},
        store=store,
    )
    with pytest.raises(Died):
        driver.invoke(pattern, "go")
    [branch] = store.branches()
    assert driver.recover(pattern, branch.id).output == {"x": "x"}
    assert ran == ["x", "x"]
