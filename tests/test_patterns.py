"""What each pattern does, on both drivers, streamed and not; the ids in docstrings are of the behaviours of Directive's patterns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from drivers import Driver
from pattern_scenes import bosses, hears, kinds, plain, says
from pydantic import BaseModel
from stop_scenes import EVERY

from phronomy import (
    Agent,
    AgentChanged,
    AsyncRequired,
    Breakpoint,
    CheckpointError,
    ConfigurationError,
    DagNode,
    GraphError,
    LimitExceeded,
    ModelConnectionError,
    NodeFailed,
    Pattern,
    Step,
    Store,
    dag,
    parallel,
    race,
    reflect,
    round_robin,
    sequential,
    supervisor,
)
from phronomy.graph import END, START, Abort, Pause, Replan, StateGraph
from phronomy.records.diff import diff
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.log.log import replay
from phronomy.testing import ScriptedModel, call


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


class Verdict(BaseModel):
    """What somebody says in a form."""

    good: bool
    why: str = ""


def breaks(name: str, times: int = 99) -> Agent[Any, Any]:
    """An agent whose model is down, so many times."""
    return Agent(name=name, model=ScriptedModel([ModelConnectionError("down")] * times + [f"{name} is up"] * 9))


def boom(value: Any) -> Any:
    """A function that raises."""
    raise LookupError("secret")


# Sequential


def test_text_is_passed_on_as_it_is_and_all_else_as_json(driver: Driver, store: Store) -> None:
    """1.5: string output passes through, others are JSON; an agent reads it, a function is given the value."""
    heard: list[Any] = []

    def look(value: Any) -> Any:
        heard.append(value)
        return value

    judge = says("judge", '{"good": true}', output_type=Verdict)
    echo = hears("echo", lambda asked: (heard.append(asked), asked)[1])
    pattern = sequential(judge, driver.function(look), echo, driver.function(lambda text: [1, text]), store=store)
    result = driver.invoke(pattern, "a question")
    assert heard == [{"good": True, "why": ""}, '{"good":true,"why":""}']
    assert result.output == [1, '{"good":true,"why":""}']
    assert pattern.steps == ("judge", "look", "echo", "step4")
    assert kinds(pattern, result) == [(name, "completed") for name in pattern.steps]
    listed = sequential([driver.function(lambda value: 2), hears("last", lambda asked: f"heard {asked}")])
    assert driver.invoke(listed, 1).output == "heard 2"


def test_the_output_is_of_the_type_of_the_last_agent(driver: Driver, store: Store) -> None:
    judge = says("judge", '{"good": true}', output_type=Verdict)
    result = driver.invoke(sequential(says("a", "x"), judge, store=store), "go")
    assert result.output == Verdict(good=True)
    assert result.checkpoint.output == {"good": True, "why": ""}
    assert driver.invoke(sequential(judge, says("a", "x")), "go").output == "x"


def test_each_hop_may_be_transformed(driver: Driver) -> None:
    heard: list[Any] = []
    echo = driver.function(lambda value: heard.append(value) or value)
    pattern = sequential(
        {"a": echo, "b": echo, "c": Step(echo, transform=lambda value: value * 2)}, transform=lambda value: f"<{value}>"
    )
    assert driver.invoke(pattern, "x").output == "<x><x>"
    assert heard == ["x", "<x>", "<x><x>"]
    broken = sequential(echo, echo, transform=boom)
    with pytest.raises(NodeFailed, match="its transform raised LookupError") as raised:
        driver.invoke(broken, "x")
    assert raised.value.failures.keys() == {"step2"}


def test_a_step_that_fails_stops_the_run_and_a_resume_runs_it_again(driver: Driver, store: Store) -> None:
    log: list[str] = []
    pattern = sequential(plain("a", log, driver), breaks("b", 1), plain("c", log, driver), store=store)
    with pytest.raises(NodeFailed) as raised:
        driver.invoke(pattern, "x")
    assert (raised.value.failures.keys(), log) == ({"b"}, ["a"])
    assert driver.resume(pattern, raised.value.checkpoint).output == "b is up+c"
    assert log == ["a", "c"]


def test_a_step_that_fails_may_be_skipped(driver: Driver, store: Store) -> None:
    """1.5: what came to it goes on; if all fail, the error says why each did."""
    log: list[str] = []
    steps = [plain("a", log, driver), breaks("b"), driver.function(boom), plain("d", log, driver)]
    pattern = sequential(steps, on_error="skip", store=store)
    result = driver.invoke(pattern, "x")
    assert result.output == "x+a+d"
    assert kinds(pattern, result) == [("a", "completed"), ("b", "failed"), ("boom", "failed"), ("d", "completed")]
    assert "LookupError" in pattern.state_of(result.checkpoint).failures["boom"]
    with pytest.raises(NodeFailed) as raised:
        driver.invoke(sequential(breaks("b"), driver.function(boom), on_error="skip"), "x")
    assert raised.value.failures.keys() == {"b", "boom"}


# Parallel


def test_parallel_steps_are_given_the_input_and_their_outputs_are_by_name(driver: Driver, store: Store) -> None:
    log: list[str] = []
    steps = [says("a", "1"), plain("b", log, driver), says("a", "3")]
    result = driver.invoke(parallel(*steps, store=store), {"q": 1})
    assert result.output == {"a": "1", "b": {"from": "b", "got": {"q": 1}}, "a_2": "3"}
    merged = parallel(*steps, merge=sorted, store=store)
    assert driver.invoke(merged, "x").output == ["a", "a_2", "b"]
    with pytest.raises(NodeFailed, match="merge raised LookupError"):
        driver.invoke(parallel(*steps, merge=boom), "x")


def test_as_many_parallel_steps_may_fail_as_are_not_needed(driver: Driver, store: Store) -> None:
    for least in (None, 2):
        strict = parallel(says("a", "1"), breaks("b"), breaks("c"), min_success=least, store=store)
        with pytest.raises(NodeFailed) as raised:
            driver.invoke(strict, "x")
        assert raised.value.failures.keys() == {"b", "c"}
        assert "ModelConnectionError" in raised.value.failures["b"]
    lax = parallel(says("a", "1"), breaks("b"), breaks("c"), min_success=1, store=store)
    result = driver.invoke(lax, "x")
    assert (result.output, sorted(lax.state_of(result.checkpoint).failures)) == ({"a": "1"}, ["b", "c"])


def test_what_failed_out_of_reach_runs_again_on_a_resume(driver: Driver, store: Store) -> None:
    asked: list[str] = []
    fine = hears("fine", lambda text: asked.append(text) or "1")  # type: ignore[func-returns-value]
    pattern = parallel(fine, breaks("b", 1), breaks("c", 1), min_success=2, store=store)
    with pytest.raises(NodeFailed) as raised:
        driver.invoke(pattern, "x")
    result = driver.resume(pattern, raised.value.checkpoint)
    assert result.output == {"fine": "1", "b": "b is up", "c": "c is up"}
    assert asked == ["x"]


# Supervisor


def test_a_supervisor_decides_who_works_and_is_told_what_came_of_it(driver: Driver, store: Store) -> None:
    log: list[str] = []
    boss = bosses(("ann", "dig"), ("note", "it"), answer="dug and noted")
    ann = says("ann", "dug", description="digs")
    pattern = supervisor(boss, [ann, plain("note", log, driver)], store=store)
    result = driver.invoke(pattern, "a hole")
    assert (result.output, log) == ("dug and noted", ["note"])
    assert [name for name, _ in kinds(pattern, result)] == ["boss", "ann", "boss", "note", "boss"]
    model: Any = boss.model
    first, *_, last = [json.loads(request.messages[-1].text) for request in model.requests]
    assert first == {"task": "a hole", "workers": {"ann": "digs", "note": ""}, "done": []}
    assert last["done"] == [
        {"worker": "ann", "instruction": "dig", "answer": "dug"},
        {"worker": "note", "instruction": "it", "answer": "it+note"},
    ]
    assert model.requests[0].settings.extra["response_format"]["type"] == "json_schema"


def test_a_manager_may_be_a_function_and_must_name_a_worker(driver: Driver) -> None:
    def boss(asked: Any) -> Any:
        return {"answer": asked["done"][0]["answer"]} if asked["done"] else {"worker": "ann", "instruction": [1]}

    heard: list[Any] = []
    ann = driver.function(lambda value: heard.append(value) or {"n": 7})
    assert driver.invoke(supervisor(driver.function(boss), {"ann": ann}), "x").output == {"n": 7}
    assert heard == [[1]]
    for said, wrong in (("hm", "neither"), ({"worker": 3}, "neither"), ({}, "neither"), ({"worker": "eve"}, "'eve'")):
        with pytest.raises(NodeFailed, match=wrong):
            driver.invoke(supervisor(driver.function(lambda asked, said=said: said), {"ann": ann}), "x")


def test_a_supervisor_has_so_many_rounds_and_more_on_a_resume(driver: Driver, store: Store) -> None:
    log: list[str] = []
    boss = bosses(("a", "1"), ("a", "2"), ("a", "3"))
    few, more = (supervisor(boss, {"a": plain("a", log, driver)}, max_rounds=n, store=store) for n in (2, 3))
    with pytest.raises(LimitExceeded) as raised:
        driver.invoke(few, "x")
    assert (raised.value.limit, log) == ("max_rounds", ["a", "a"])
    assert driver.resume(more, raised.value.checkpoint).output == "all done"
    assert log == ["a", "a", "a"]


def test_a_manager_may_be_told_of_a_failure(driver: Driver, store: Store) -> None:
    heard: list[Any] = []

    def boss(asked: Any) -> Any:
        heard.append(asked["done"])
        return {"answer": "gave up"} if asked["done"] else {"worker": "boom", "instruction": "go"}

    told = supervisor(driver.function(boss), [driver.function(boom)], on_error="tell", store=store)
    assert driver.invoke(told, "x").output == "gave up"
    assert "LookupError" in heard[-1][0]["failed"]
    with pytest.raises(NodeFailed):
        driver.invoke(supervisor(driver.function(boss), [driver.function(boom)]), "x")


# Round robin


def test_a_round_robin_goes_round(driver: Driver, store: Store) -> None:
    log: list[str] = []
    a, b = plain("a", log, driver), plain("b", log, driver)
    assert driver.invoke(round_robin(a, b, rounds=2, store=store), "x").output == "x+a+b+a+b"
    until = round_robin(a, b, until=lambda said: said.count("a") == 2, store=store)
    assert driver.invoke(until, "x").output == "x+a+b+a"
    with pytest.raises(LimitExceeded, match="max_steps=4"):
        driver.invoke(round_robin(a, b, until=lambda said: False, max_steps=4), "x")
    with pytest.raises(NodeFailed, match="until raised LookupError"):
        driver.invoke(round_robin(a, until=boom), "x")


# DAG


def test_a_dag_runs_what_is_ready_and_joins(driver: Driver, store: Store) -> None:
    log: list[str] = []
    nodes = {
        "last": DagNode(plain("last", log, driver), ["left", "right"]),
        "left": DagNode(plain("left", log, driver), ["top"], transform=lambda given: given["top"]),
        "right": DagNode(plain("right", log, driver), ["top"]),
        "top": plain("top", log, driver),
    }
    result = driver.invoke(dag(nodes, store=store), "x")
    right = {"from": "right", "got": {"top": "x+top"}}
    assert result.output == {"from": "last", "got": {"left": "x+top+left", "right": right}}
    assert (log[0], sorted(log[1:3]), log[3]) == ("top", ["left", "right"], "last")


def test_an_agent_reads_what_it_needs_as_json_and_may_back_many_nodes(driver: Driver) -> None:
    echo = hears("echo", lambda asked: f"[{asked}]")
    result = driver.invoke(dag({"a": echo, "b": echo, "c": DagNode(echo, ["a", "b"])}), "x")
    assert result.output == '[{"a":"[x]","b":"[x]"}]'


def test_the_output_of_a_dag_with_several_ends(driver: Driver) -> None:
    nodes = {"a": lambda value: 1, "b": DagNode(lambda given: 2, ["a"]), "c": DagNode(lambda given: 3, ["a"])}
    assert driver.invoke(dag(nodes), "x").output == {"b": 2, "c": 3}
    assert driver.invoke(dag(nodes, merge=lambda found: sum(found.values())), "x").output == 5


@pytest.mark.parametrize("when", [lambda given: False, boom])
def test_a_predicate_that_is_false_or_raises_leaves_a_node_out(driver: Driver, when: Any, store: Store) -> None:
    """1.5: and what needs only such nodes; what needs others as well goes on with those."""
    log: list[str] = []
    nodes = {
        "a": plain("a", log, driver),
        "no": DagNode(plain("no", log, driver), ["a"], when=when),
        "below": DagNode(plain("below", log, driver), ["no"]),
        "root": DagNode(plain("root", log, driver), when=when),
        "both": DagNode(plain("both", log, driver), ["a", "below"], when=lambda given: given == {"a": "x+a"}),
    }
    pattern = dag(nodes, store=store)
    result = driver.invoke(pattern, "x")
    assert log == ["a", "both"]
    assert dict(kinds(pattern, result)) == {
        "a": "completed", "no": "left_out", "below": "left_out", "root": "left_out", "both": "completed"
    }  # fmt: skip
    assert result.output == {"both": {"from": "both", "got": {"a": "x+a"}}}


def test_what_a_failure_does_to_a_dag(driver: Driver, store: Store) -> None:
    log: list[str] = []

    def nodes(first: Any) -> dict[str, Any]:
        return {
            "a": plain("a", log, driver),
            "bad": first,
            "b": DagNode(plain("b", log, driver), ["bad", "a"]),
            "c": DagNode(plain("c", log, driver), ["b"]),
            "d": DagNode(plain("d", log, driver), ["a"]),
        }

    fails = dag(nodes(breaks("bad", 1)), store=store)
    with pytest.raises(NodeFailed) as raised:
        driver.invoke(fails, "x")
    assert (raised.value.failures.keys(), log[:1], {"b", "c"} & {*log}) == ({"bad"}, ["a"], set())
    assert driver.resume(fails, raised.value.checkpoint).output.keys() == {"c", "d"}
    assert sorted(log) == ["a", "b", "c", "d"]

    log.clear()
    skips = dag(nodes(breaks("bad")), on_error="skip_downstream", store=store)
    result = driver.invoke(skips, "x")
    assert (log, result.output.keys()) == (["a", "d"], {"d"})
    assert {name for name, kind in kinds(skips, result) if kind == "left_out"} == {"b", "c"}

    log.clear()
    result = driver.invoke(dag(nodes(breaks("bad")), on_error="continue", store=store), "x")
    assert (sorted(log), result.output["c"]["got"]["b"]["got"]) == (["a", "b", "c", "d"], {"a": "x+a"})

    with pytest.raises(NodeFailed) as raised:
        driver.invoke(dag({"bad": breaks("bad"), "b": DagNode(boom, ["bad"])}, on_error="continue"), "x")
    assert raised.value.failures.keys() == {"bad", "b"}


def test_what_is_ready_begins_by_priority(driver: Driver) -> None:
    log: list[str] = []
    nodes = {name: DagNode(plain(name, log, driver), priority=n) for n, name in ((0, "a"), (9, "b"), (3, "c"))}
    driver.invoke(dag(nodes, max_parallel=1), "x")
    assert log == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("nodes", "wrong"),
    [
        ({}, "by name"),
        ([boom], "by name"),
        ({"a": DagNode(boom, ["a"])}, "needs itself"),
        ({"a": DagNode(boom, ["b"])}, "needs 'b'"),
        ({"a": DagNode(boom, "b")}, "list of names"),
        (
            {"a": DagNode(boom, ["b"]), "b": DagNode(boom, ["a"])},
            "no step can begin; these need each other in a circle: a, b",
        ),
        ({"r": boom, "a": DagNode(boom, ["b", "r"]), "b": DagNode(boom, ["a"])}, "circle: a, b"),
        ({"a b": boom}, "cannot name a step"),
        ({"a": DagNode(boom, when=3)}, "plain function"),  # type: ignore[arg-type]
        ({"a": DagNode(boom, priority="high")}, "priority"),  # type: ignore[arg-type]
        ({"a": 3}, "not int"),
    ],
)
def test_a_dag_that_cannot_run_is_refused(nodes: Any, wrong: str) -> None:
    with pytest.raises(GraphError, match=wrong):
        dag(nodes)


# Reflect


def test_a_draft_is_judged_and_written_again(driver: Driver, store: Store) -> None:
    """1.5, W13: the writer is given its last draft and the feedback on that, never the feedback on the ones before."""
    asked: list[Any] = []

    def write(task: Any) -> str:
        asked.append(task)
        return f"draft {len(asked)}"

    def judge(given: Any) -> Any:
        n = int(given["draft"][-1])
        return {"passed": n == 3, "score": n / 10, "feedback": f"not {given['draft']}"}

    pattern = reflect(driver.function(write), driver.function(judge), max_rounds=5, store=store)
    assert driver.invoke(pattern, "a poem").output == "draft 3"
    assert asked == [
        "a poem",
        {"task": "a poem", "draft": "draft 1", "feedback": "not draft 1"},
        {"task": "a poem", "draft": "draft 2", "feedback": "not draft 2"},
    ]


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ('Here: {"passed": true} as asked', True),
        ('{"passed": false, "score": 0.9}', True),
        ('{"passed": false, "score": 0.1}', False),
        ('{"score": 0.9}', True),
        ('{"score": NaN}', False),
        ('{"passed": "yes"}', False),
        ("it is good", False),
        ("{passed: true}", False),
    ],
)
def test_what_a_critic_says_is_read_or_has_not_passed(driver: Driver, said: str, passes: bool) -> None:
    heard: list[Any] = []
    writer = hears("writer", lambda asked: heard.append(asked) or "x")  # type: ignore[func-returns-value]
    pattern = reflect(writer, says("critic", said), threshold=0.8)
    assert driver.invoke(pattern, "go").output == "x"
    assert len(heard) == (1 if passes else 2)
    if not passes and "score" not in said:
        assert f"could not be read, so the draft has not passed. It was: {said}" in json.loads(heard[1])["feedback"]


def test_what_becomes_of_a_draft_that_never_passes(driver: Driver, store: Store) -> None:
    drafts: list[str] = []
    scores = [2, 9, 4]

    def write(task: Any) -> str:
        drafts.append(f"draft {len(drafts)}")
        return drafts[-1]

    def judge(given: Any) -> Any:
        return {"passed": False, "score": scores[int(given["draft"][-1])]}

    def made(how: Any, rounds: int = 3) -> Pattern[Any]:
        drafts.clear()
        return reflect(driver.function(write), driver.function(judge), max_rounds=rounds, on_exhausted=how, store=store)

    assert driver.invoke(made("accept_last"), "x").output == "draft 2"
    assert driver.invoke(made("accept_best"), "x").output == "draft 1"
    with pytest.raises(LimitExceeded) as raised:
        driver.invoke(made("fail", 2), "x")
    assert (raised.value.limit, drafts) == ("max_rounds", ["draft 0", "draft 1"])
    more = reflect(driver.function(write), driver.function(judge), max_rounds=3, store=store)
    assert driver.resume(more, raised.value.checkpoint).output == "draft 2"


# What they share


def test_patterns_nest_and_are_nodes_of_graphs(driver: Driver, store: Store) -> None:
    log: list[str] = []

    class Office(BaseModel):
        n: int = 0
        text: str = ""

    office = (
        StateGraph(Office)
        .add_node("count", driver.function(lambda state: {"n": state.n + 1}))
        .add_edge(START, "count")
        .add_edge("count", END)
        .compile()
    )
    inner = parallel(plain("a", log, driver), office, merge=lambda found: found["Office"], name="inner")
    outer = sequential(driver.function(lambda value: {"n": 4}), inner, plain("b", log, driver), store=store)
    assert driver.invoke(outer, "x").output == {"from": "b", "got": {"n": 5, "text": ""}}
    assert outer.steps == ("step1", "inner", "b")

    around = (
        StateGraph(Office, name="around")
        .add_node("team", round_robin(plain("c", log, driver), rounds=1), input="text", output="text")
        .add_edge(START, "team")
        .add_edge("team", END)
        .compile(store=store)
    )
    assert driver.invoke(around, {"text": "5"}).output.text == "5+c"
    with pytest.raises(GraphError, match="is a pattern: say what it is asked"):
        StateGraph(Office).add_node("team", inner)
    typed = sequential(sequential(says("j", '{"good": true}', output_type=Verdict), name="in"), store=store)
    assert driver.invoke(typed, "x").output == Verdict(good=True)


@pytest.mark.parametrize("value", ["5", 5, None, True, 1.5, [1, "a"], {"a": None}, "", "null", '{"a": 1}'])
def test_what_goes_through_nested_patterns_stays_what_it_is(driver: Driver, value: Any) -> None:
    same = driver.function(lambda given: given)
    result = driver.invoke(
        sequential(sequential(parallel(same, same, merge=lambda found: found["step1"])), same), value
    )
    assert (result.output, type(result.output)) == (value, type(value))


def test_a_pattern_is_a_tool(driver: Driver, store: Store) -> None:
    team = sequential(hears("echo", lambda asked: f"echo of {asked}"), name="team")
    agent = says(
        "desk", call("team", {"input": "it"}), "done", tools=[team.as_tool(description="Ask the team.")], store=store
    )
    result = driver.invoke(agent, "go")
    assert [message.text for message in result.messages if message.role == "tool"] == ["echo of it"]


def test_each_run_of_a_thread_begins_afresh(driver: Driver, store: Store) -> None:
    log: list[str] = []
    pattern = sequential(plain("a", log, driver), store=store)
    for text in ("x", "y"):
        result = driver.invoke(pattern, text, thread_id="t")
        assert (result.output, len(pattern.state_of(result.checkpoint).turns)) == (f"{text}+a", 1)


def test_what_a_function_may_signal(driver: Driver, store: Store) -> None:
    log: list[str] = []
    paused = sequential(
        driver.function(lambda value: Pause(f"{value}!", reason="look")), plain("b", log, driver), store=store
    )
    result = driver.invoke(paused, "x")
    assert (result.suspended, result.checkpoint.pending[0].reason, log) == (True, "look", [])
    assert driver.resume(paused, result.checkpoint).output == "x!+b"
    aborted = sequential(
        driver.function(lambda value: Abort(value, reason="enough")), plain("b", log, driver), store=store
    )
    result = driver.invoke(aborted, "x")
    assert (result.status, log) == ("cancelled", ["b"])
    with pytest.raises(NodeFailed, match="its pattern says what comes next"):
        driver.invoke(sequential(driver.function(lambda value: Replan(value, to="a"))), "x")
    with pytest.raises(NodeFailed, match="which is no JSON"):
        driver.invoke(sequential(driver.function(lambda value: object())), "x")


def test_every_unit_is_a_checkpoint(driver: Driver, store: Store) -> None:
    """D44, D45, D46: each step from the first on, by default, with no setting for it; one on four steps is four."""
    log: list[str] = []
    pattern = sequential(*(plain(name, log, driver) for name in "abcd"), store=store)
    result = driver.invoke(pattern, "x")
    [branch] = store.branches(run_id=result.run_id)
    kept = [each for each in replay(whole_lineage(store, branch_id=branch.id).entries) if not each.path]
    assert sorted({len(pattern.state_of(each).turns) for each in kept}) == [0, 1, 2, 3, 4]


def test_a_resume_goes_on_from_the_counter_and_replays_nothing(driver: Driver, store: Store) -> None:
    """D47: stepped from checkpoint to checkpoint, each step runs once; a fork of each ends alike, without running what is done."""
    log: list[str] = []
    make = lambda: sequential(*(plain(name, log, driver) for name in "abc"), store=store)  # noqa: E731
    result = driver.step(make(), "x")
    seen = [result.checkpoint]
    while result.status == "running":
        result = driver.step(make(), result.checkpoint)
        seen.append(result.checkpoint)
    assert (log, result.output) == (["a", "b", "c"], "x+a+b+c")
    for checkpoint in seen[:-1]:
        log.clear()
        done = len(make().state_of(checkpoint).turns)
        again = driver.resume(make(), driver.fork(make(), checkpoint, rerun=True))
        assert (again.output, len(log)) == ("x+a+b+c", 3 - done)


def test_a_checkpoint_of_another_kind_of_pattern_is_refused(driver: Driver, store: Store) -> None:
    """D48, D49: by what it is of, not by what it is given to; nothing is loaded in part."""
    log: list[str] = []
    steps = [plain("a", log, driver), plain("b", log, driver)]
    begun = driver.step(sequential(steps, name="team", store=store), "x").checkpoint
    with pytest.raises(AgentChanged, match="it was sequential, and is parallel"):
        driver.resume(parallel(steps, name="team", store=store), begun)
    assert log == []
    assert driver.resume(sequential(steps, name="team", store=store), begun).output == "x+a+b"


def test_steps_that_have_changed_places_are_refused(driver: Driver, store: Store) -> None:
    """D37, D48: a counter that would point to another step is drift, judged before anything is consumed."""
    log: list[str] = []
    a, b, c = (plain(name, log, driver) for name in "abc")
    stop = [Breakpoint("pre_pattern_step", nodes=["b"])]
    half = driver.invoke(sequential(a, b, store=store), "x", breakpoints=stop).checkpoint
    other = sequential(c, a, b, store=store)
    with pytest.raises(AgentChanged, match="turn 0 of the checkpoint is of step a, where that of c is due"):
        driver.resume(other, half)
    with pytest.raises(CheckpointError, match=r"where that of c is due \(checkpoint ckpt_[0-9a-f]{24}\)"):
        driver.resume(other, driver.fork(other, half), accept_changes=True)
    assert log == ["a", "b"], "what was opened there has run; the pattern does not go on after it"
    assert driver.resume(sequential(a, b, c, store=store), half).output == "x+a+b+c"

    boss = bosses(("a", "1"))
    stop = [Breakpoint("pre_pattern_step", nodes=["a"])]
    half = driver.invoke(supervisor(boss, [a], store=store), "x", breakpoints=stop).checkpoint
    with pytest.raises(AgentChanged, match="of step boss, where that of other is due"):
        driver.resume(supervisor(says("other", "x"), [a], store=store), half)


def test_a_stop_of_the_graph_and_a_change_of_its_state(driver: Driver, store: Store) -> None:
    log: list[str] = []
    pattern = sequential(*(plain(name, log, driver) for name in "abc"), store=store)
    paused = driver.invoke(pattern, "x", interrupt_before=["b"], interrupt_after=["b"])
    assert (paused.checkpoint.pending[0].args, log) == ({"arg": "x+a"}, ["a"])
    after = driver.resume(pattern, paused.checkpoint, interrupt_after=["b"])
    assert (after.suspended, pattern.stop_of(after.checkpoint).after, log) == (True, ("b",), ["a", "b"])
    assert driver.resume(pattern, after.checkpoint).output == "x+a+b+c"
    forked = driver.call(pattern, "fork", after.checkpoint, update={"output": "z"})
    assert pattern.state_of(forked).output == "z"


def test_progress_and_difference(driver: Driver, store: Store) -> None:
    """D50: how far a run is, in turns and tokens, and what came between two of its checkpoints."""
    log: list[str] = []
    pattern = sequential(says("a", "1"), *(plain(name, log, driver) for name in "bcd"), store=store)
    result = driver.step(pattern, "x")
    shares, seen = [], []
    while result.status == "running":
        progress = pattern.progress(result.checkpoint)
        shares.append((progress.done, progress.total, progress.percentage))
        seen.append(result.checkpoint)
        result = driver.step(pattern, result.checkpoint)
    assert list(dict.fromkeys(shares)) == [(0, 4, 0.0), (1, 4, 25.0), (2, 4, 50.0), (3, 4, 75.0)]
    assert pattern.progress(result.checkpoint).percentage == 100.0
    changed = {each.path for each in diff(seen[0], result.checkpoint).state}
    assert {"/turns", "/output"} <= {f"/{path.split('/')[1]}" for path in changed}
    assert (
        round_robin(plain("a", log, driver), until=bool)
        .progress(driver.step(round_robin(plain("a", log, driver), until=bool), "x").checkpoint)
        .total
        is None
    )


def test_patterns_are_drawn(driver: Driver) -> None:
    log: list[str] = []
    a, b = plain("a", log, driver), plain("b", log, driver)
    made = [
        sequential(a, b),
        parallel(a, b),
        supervisor(a, {"b": b}),
        round_robin(a, b, rounds=1),
        reflect(a, b),
        race(a, b),
    ]
    for pattern in (*made, dag({"a": a, "b": DagNode(b, ["a"])})):
        text = pattern.to_mermaid()
        assert ('n1["a"]' in text, 'n2["b"]' in text) == (True, True)
        assert pattern.to_svg().startswith("<svg")


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (sequential, "has no steps"),
        (lambda: parallel([]), "has no steps"),
        (lambda: sequential(3), "not int"),
        (lambda: sequential(Agent), "not Agent"),
        (lambda: sequential(boom, on_error="retry"), "'fail', 'skip'"),  # type: ignore[arg-type]
        (lambda: sequential(boom, speed=3), "no option speed"),  # type: ignore[call-arg]
        (lambda: sequential(Step(boom, streams=["x"])), "no option streams"),
        (lambda: sequential(Step(boom, transform=3)), "plain function"),  # type: ignore[arg-type]
        (lambda: sequential({"a b": boom}), "cannot name a step"),
        (lambda: sequential(boom, transform=3), "plain function"),  # type: ignore[arg-type]
        (lambda: parallel(boom, min_success=2), "from 1 to 1"),
        (lambda: round_robin(boom), "say when it ends"),
        (lambda: round_robin(boom, rounds=0), "above 0"),
        (lambda: supervisor(boom, []), "has no steps"),
        (lambda: supervisor(boom, [boom], max_rounds=0), "above 0"),
        (lambda: supervisor(says("m", "x", output_type=Verdict), [boom]), "output type of its own"),
        (lambda: reflect(boom, boom, max_rounds=0), "above 0"),
        (lambda: reflect(boom, boom, threshold=True), "a number"),
        (lambda: reflect(boom, boom, on_exhausted="weep"), "accept_best"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_pattern_is_refused(make: Any, wrong: str) -> None:
    with pytest.raises(GraphError, match=wrong):
        make()


def test_a_pattern_is_fixed_and_begins_with_json() -> None:
    pattern = sequential(lambda value: value)
    with pytest.raises(ConfigurationError):
        pattern.name = "other"
    with pytest.raises(ConfigurationError, match="no JSON"):
        pattern.invoke(object())
    with pytest.raises(ConfigurationError, match="not with messages"):
        pattern.invoke("x", messages=[])
    with pytest.raises(CheckpointError):
        pattern.progress("x")  # type: ignore[arg-type]

    async def late(value: Any) -> Any:
        return value

    with pytest.raises(AsyncRequired, match="'late'"):
        sequential(late).invoke("x")
