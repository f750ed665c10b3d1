"""What an article on reliable agent runtimes promises of checkpoints, forks, replay and approval, as stories; and what its listings get
wrong. Each story names its scenario (`CMP-A07`) or its defect (`P2`), and is told on every store by both drivers.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from drivers import PATIENCE, Driver, outline
from places import KINDS, Place, place_of
from redis_server import RedisServer
from test_failures_authority import posted, unchanged
from test_failures_once import HOUR, PowerCut, pays, vandalise
from test_failures_stores import Shop, bare, lose

import phronomy
from phronomy import (
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    CheckpointNotFound,
    ModelError,
    Reject,
    RunBusy,
    StoreError,
    ToolContext,
    open_store,
    tool,
)
from phronomy.stores import MemoryStore, PostgresStore, RedisStore, SQLiteStore
from phronomy.stores.rows import Append, Branch, Entry
from phronomy.testing import ScriptedModel, call, say

pytestmark = [pytest.mark.unmeasured, pytest.mark.worlds(1)]

SCENARIOS = ("A01", "A03", "A04", "A05", "A07", "A08", "A10", "A11", "A13", "A15")
DEFECTS = tuple(f"P{number}" for number in range(1, 13))
GRAPHS = ("A01", "A03", "A04", "A05", "A07", "A08", "A10", "A11", "A13", "A15", *(f"P{n}" for n in range(1, 13)))
"""Those that graphs have a story of as well, in a file of their own."""


@pytest.mark.parametrize("file", ["test_runtime_article.py", "test_graph_article.py"])
def test_every_scenario_and_every_defect_has_a_story(file: str) -> None:
    """None is forgotten: what is of channels and nodes alone has its story with the graphs."""
    told: set[str] = set()
    for node in ast.parse(Path(__file__).with_name(file).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            names = set(re.findall(r"CMP-(A\d+)|\b(P\d+)\b", ast.get_docstring(node) or ""))
            found = {one or other for one, other in names}
            assert not found or {argument.arg for argument in node.args.args} & {"desk", "driver"}, node.name
            told |= found
    assert told <= {*SCENARIOS, *DEFECTS}
    assert told >= ({*SCENARIOS, *DEFECTS} - {"A01", "A05", "P8"} if file == Path(__file__).name else set(GRAPHS))


@pytest.fixture
def desk(driver: Driver, place: Place) -> Shop:
    return Shop(driver, place)


# The scenarios


def test_what_needs_approval_has_not_run_at_the_pause(desk: Shop) -> None:
    """CMP-A03, and P1: the gate stands before the body. After the approval it runs once."""
    desk.script([*pays(1), "end"], desk.tool("pay"))

    result = desk.invoke()

    assert (result.status, desk.done) == ("suspended", [])
    result = desk.approve(result.checkpoint.id)
    assert (result.status, desk.done) == ("completed", ["pay 1 10"])


WORKER = """
import sys
from drivers import ASYNC, SYNC
from phronomy import Agent, open_store, tool
from phronomy.testing import ScriptedModel, call

driver, url, id = {"sync": SYNC, "async": ASYNC}[sys.argv[1]], sys.argv[2], sys.argv[3]

def effect(name):
    def body(order: int) -> str:
        "Do it."
        print("did", name, order, flush=True)
        return f"{name} {order} is done"
    return driver.function(body)

tools = [tool(name="look")(effect("look")), tool(name="pay", requires_approval=True)(effect("pay"))]
model = ScriptedModel.by_turn([[call("look", {"order": 1}), call("pay", {"order": 2})], call("look", {"order": 3}), "end"])
store = open_store(url)
agent = Agent(name="clerk", model=model, tools=tools, store=store)
if id == "new":
    checkpoint = driver.invoke(agent, "go", thread_id="t", metadata={"a": [1, None]}).checkpoint
    print("waits", checkpoint.id, checkpoint.digest, checkpoint.pending[0].id, flush=True)
    sys.stdin.readline()  # killed here
else:
    checkpoint = store.load(id)
    print("waits", checkpoint.id, checkpoint.digest, checkpoint.pending[0].id, flush=True)
    result = driver.resume(agent, id, approved=True)
    print("ended", result.status, result.output, flush=True)
    store.close()
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("place", KINDS[1:], indirect=True)  # memory is gone with its process
def test_a_killed_process_is_gone_on_from_by_id_in_a_fresh_one(desk: Shop) -> None:
    """CMP-A04, and P6: killed while it waits, the run continues at the same call with equal state, known by its id alone. C7, C14."""
    paths = os.pathsep.join([str(Path(phronomy.__file__).parents[1]), str(Path(__file__).parent)])

    def start(id: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WORKER, str(desk.driver), desk.place.url, id]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "PYTHONPATH": paths}
        )

    first = start("new")
    assert first.stdout is not None
    lines = [first.stdout.readline().split(), first.stdout.readline().split()]
    first.kill()
    first.communicate()
    assert first.returncode < 0
    assert [line[0] for line in lines] == ["did", "waits"], lines

    second = start(lines[1][1])
    said, complained = second.communicate(timeout=PATIENCE)
    assert (second.returncode, complained) == (0, "")
    assert said.splitlines() == [" ".join(lines[1]), "did pay 2", "did look 3", "ended completed end"]


def stored(desk: Shop, branch_id: str) -> list[tuple[Any, ...]]:
    """What stands in the log of a branch, byte for byte, and what is loaded from it."""
    store = desk.store()
    entries = [
        (each.seq, each.path, each.checkpoint_id, each.body) for each in store.lineage(branch_id=branch_id).entries
    ]
    return [*entries, *[(each.id, each.model_dump_json()) for each in store.history(store.head(branch_id)[0].head)]]


def test_a_branch_with_edits_leaves_the_original_as_it_was(desk: Shop) -> None:
    """CMP-A07: a new branch id, its parent is the checkpoint; both run to their ends."""
    desk.script([], desk.tool("pay"), desk.tool("look", requires_approval=False))
    desk.model = ScriptedModel.by_turn([call("look", {"order": 1}), *pays(2), "end"])
    c2 = desk.invoke(thread_id="t").checkpoint
    before = stored(desk, c2.branch_id)

    fork = desk.fork(c2, label="what if")
    edited = desk.decide(fork, 0, Approve(args={"order": 2, "amount": 99}))

    assert (edited.status, desk.done) == ("completed", ["look 1 10", "pay 2 99"])
    assert (fork.parent_id, fork.run_id, fork.messages) == (c2.id, c2.run_id, c2.messages)
    assert fork.branch_id not in (c2.branch_id, c2.run_id)
    assert stored(desk, c2.branch_id) == before
    assert desk.store().load(c2.id).model_dump_json() == c2.model_dump_json()
    original = desk.approve(c2)
    assert (original.status, desk.done[2:]) == ("completed", ["pay 2 10"])
    assert [child.id for child in desk.store().children(c2.id)][1:] == [fork.id]
    assert {branch.status for branch in desk.store().branches(run_id=c2.run_id)} == {"completed"}


@pytest.mark.parametrize("method", ["fork", "resume", "recover", "cancel", "approve"])
def test_an_unknown_parent_is_not_found_and_nothing_is_saved(desk: Shop, method: str) -> None:
    """CMP-A08: by every way that names a checkpoint, and by the store's own. C5."""
    desk.script([*pays(1), "end"], desk.tool("pay"))
    desk.invoke(thread_id="t")
    error = unchanged(desk, partial(getattr(desk, method), "ckpt_0"), CheckpointNotFound)
    assert error.id == "ckpt_0"
    assert "ckpt_0" in str(error)

    store, before = desk.store(), desk.rows()
    orphan = Branch(id="b9", run_id="r9", thread_id=None, agent="clerk", parent_branch="b0", parent_seq=1, seq=1)
    change = Append(branch_id="b9", seq=1, entries=(Entry(path="", body="{}", checkpoint_id="c9"),))
    with pytest.raises(CheckpointNotFound):
        store.create(orphan, change, exclusive=False)
    assert desk.rows() == before


def test_a_replayed_call_has_the_same_key_and_one_effect(desk: Shop) -> None:
    """CMP-A10: after a crash it is repeated under its key; from an earlier checkpoint its result is used. C10."""
    keys: list[str] = []

    def pay(order: int, ctx: ToolContext[Any]) -> str:
        """Pay."""
        keys.append(ctx.idempotency_key)
        return f"receipt {len(set(keys))}"

    desk.script([], tool(requires_approval=True, idempotent=True)(desk.driver.function(pay)))
    desk.model = ScriptedModel.by_turn([*pays(1), "end"])
    waits = desk.invoke().checkpoint
    lost = desk.agent(store=lose(desk.beside(), lambda change: bool(keys)))
    with pytest.raises(PowerCut):
        desk.driver.resume(lost, waits, approved=True)
    desk.later = HOUR
    assert desk.recover(waits).messages[2].text == "receipt 1"
    assert (len(keys), len(set(keys))) == (2, 1)

    for point in desk.store().history(waits.id):
        fork = desk.fork(point)
        result = desk.approve(fork if fork.pending else desk.resume(fork).checkpoint)
        assert (result.status, result.messages[2].text) == ("completed", "receipt 1")
    assert (len(keys), len(set(keys))) == (2, 1)


@pytest.mark.parametrize("then", ["fallback", "human"])
def test_after_two_failures_another_tool_or_a_human_takes_over_unasked(desk: Shop, then: str) -> None:
    """CMP-A11: which of them is configured; the model is not asked in between. C11."""
    tries: list[int] = []

    def pay(order: int) -> str:
        """Pay."""
        tries.append(order)
        raise OSError("down")

    standby = desk.tool("standby", requires_approval=False)
    options: dict[str, Any] = {"fallback": [standby]} if then == "fallback" else {"on_failure": "human"}
    made = tool(idempotent=True, retries=1, retry_wait=0.0, **options)(desk.driver.function(pay))
    desk.script([*pays(1), "end"], made)

    result = desk.invoke()

    assert tries == [1, 1]
    if then == "human":
        assert (result.status, len(desk.model.requests)) == ("suspended", 1)
        [item] = result.checkpoint.pending
        assert (item.why, item.tool_name, item.args) == ("failed", "pay", {"order": 1})
        result = desk.resume(result.checkpoint.id, decisions={item.id: Reject(reason="later")})
    assert (result.status, len(desk.model.requests), len(tries)) == ("completed", 2, 2)
    assert desk.done == (["standby 1 10"] if then == "fallback" else [])


def transcript(desk: Shop) -> list[Any]:
    """One life of runs as whoever reads the store sees it, without ids and times."""
    desk.script([], desk.tool("pay", risk="high"), desk.tool("look", requires_approval=False))
    desk.model = ScriptedModel.by_turn([[call("look", {"order": 1}), *pays(2, 3)], *pays(4), "end"])
    first = desk.invoke("one", thread_id="t", label="begun").checkpoint
    said: list[Any] = [[(item.tool_name, item.args, item.call_id) for item in first.pending]]
    second = desk.decide(first, 1, Reject(reason="no")).checkpoint
    fork = desk.fork(first, label="what if")
    third = desk.approve(second.id)
    said += [outline(second), outline(third)]
    with pytest.raises(CheckpointAlreadyResumed):
        desk.decide(first, 1, Approve())
    said.append(
        outline(desk.resume(third.checkpoint, decisions={third.checkpoint.pending[0].id: Approve(args={"order": 9})}))
    )
    said.append(outline(desk.cancel(fork)))
    desk.invoke("two", thread_id="t")
    said.append(outline(desk.invoke("three", thread_id="t", on_pending="supersede")))
    store = desk.store()
    for branch in store.branches():
        history = store.history(branch.head or "")
        said.append(
            (branch.status, branch.label, branch.thread_id, [(each.step, each.status, each.label) for each in history])
        )
    said.append([(item.agent, item.thread_id, item.label, item.approval.args) for item in store.pending(risk="high")])
    said.append([(info.label, info.thread_id) for info in store.list(labeled=True)])
    said.append([(line.kind, line.tool_name, line.digest, line.edited, line.reason) for line in store.audit()])
    return [*said, sorted(desk.done)]


def test_the_transcript_is_the_same_on_every_store(driver: Driver, tmp_path: Path) -> None:
    """CMP-A13, and P10: the same calls, and nobody can tell which store it was. C8."""
    told = []
    for kind in KINDS:
        folder = tmp_path / kind
        folder.mkdir()
        with place_of(kind, folder) as place:
            told.append(transcript(Shop(driver, place)))
    assert len(told[0]) > 12
    assert told[0][-1] == sorted(["look 1 10", "pay 2 10", "pay 9 10", "look 1 10", "look 1 10"])
    for each in told[1:]:
        assert each == told[0]


def test_no_checkpoint_is_made_in_the_middle_of_a_stream(desk: Shop) -> None:
    """CMP-A15: asked for while tokens come, it is that of the last boundary, and whoever would go on is refused."""
    desk.script([], desk.tool("pay"))
    desk.model = ScriptedModel.by_turn(
        [say("I will pay it, and tell you when it is done.", *pays(1)), "all is done by now"]
    )
    seen: list[Any] = []

    def look(event: Any) -> None:
        branch, head = desk.beside().head(event.branch_id)
        assert branch.owner is not None
        seen.append((head.status, [message.role for message in head.messages], len(desk.beside().history(head.id))))
        with pytest.raises(RunBusy):
            desk.driver.recover(desk.worker(), event.run_id)

    def watch(agent: Any, at: Any, **options: Any) -> str:
        """Stream until the third piece of text, and leave; the branch."""
        pieces = 0
        if not desk.driver.is_async:
            stream = agent.stream(at, **options)
            for event in stream:
                pieces += event.type == "text_delta"
                if pieces == 3:
                    look(event)
                    break
            stream.close()
            return str(event.branch_id)

        async def main() -> str:
            count = 0
            stream = agent.astream(at, **options)
            async for event in stream:
                count += event.type == "text_delta"
                if count == 3:
                    await asyncio.to_thread(look, event)
                    break
            await stream.aclose()
            return str(event.branch_id)

        return asyncio.run(main())

    branch_id = watch(desk.worker(), "go", thread_id="t")
    assert seen == [("running", ["user"], 1)]
    waits = desk.recover(branch_id).checkpoint
    assert [message.role for message in waits.messages] == ["user", "assistant"]

    watch(desk.worker(), waits, approved=True)
    assert seen[1][:2] == ("running", ["user", "assistant", "tool"])
    assert desk.recover(branch_id).output == "all is done by now"
    assert desk.done == ["pay 1 10"]


# The defects of the listings


def life(desk: Shop) -> list[Checkpoint]:
    """The checkpoints of a run with two turns and two approvals."""
    desk.script([], desk.tool("pay"))
    desk.model = ScriptedModel.by_turn([*pays(1), *pays(2), "end"])
    result = desk.approve(desk.approve(desk.invoke(thread_id="t").checkpoint).checkpoint)
    assert result.status == "completed"
    found: list[Checkpoint] = desk.store().history(result.checkpoint.id)
    return found


def test_lineage_is_a_line_of_typed_steps(desk: Shop) -> None:
    """P2, P4: none is its own parent, each follows the one before, and a step is a number."""
    found = life(desk)
    ids = [each.id for each in found]
    assert len(set(ids)) == len(ids) > 6
    assert [each.parent_id for each in found] == [None, *ids[:-1]]
    assert [each.step for each in found] == list(range(len(found)))
    assert {type(each.step) for each in found} == {int}
    store = desk.store()
    assert [[child.id for child in store.children(id)] for id in ids] == [[id] for id in ids[1:]] + [[]]


def test_history_is_not_rewritten_by_later_steps(desk: Shop) -> None:
    """P3: what was handed out, and what is kept, share nothing with what happens next."""
    desk.script([], desk.tool("pay"))
    desk.model = ScriptedModel.by_turn([*pays(1), *pays(2), "end"])
    agent = desk.agent()
    first = desk.driver.invoke(agent, "go").checkpoint
    text = first.model_dump_json()
    vandalise(first)
    second = desk.driver.resume(agent, first, approved=True).checkpoint
    desk.driver.resume(agent, second, approved=True)
    assert first.model_dump_json() == text
    history = agent.store.history(second.id)
    lengths = [len(each.messages) for each in history]
    vandalise(history)
    assert bare(agent.store.load(first.id)).model_dump_json() == bare(posted(first)).model_dump_json()
    assert [len(each.messages) for each in agent.store.history(second.id)] == lengths


def test_ends_and_failures_are_stored(desk: Shop) -> None:
    """P5, P7: a failure is recorded and can be gone on from, an abort is an end, and the completed state is the last that is there."""
    desk.script([], desk.tool("pay"))
    desk.model = ScriptedModel([ModelError("down"), *pays(1), "end", *pays(2)])
    with pytest.raises(ModelError) as failed:
        desk.invoke(thread_id="t")
    assert failed.value.checkpoint is not None
    [branch] = desk.store().branches(thread_id="t")
    assert (branch.status, branch.head, branch.owner) == ("failed", failed.value.checkpoint.id, None)
    waits = desk.resume(branch.head or "").checkpoint
    ended = desk.approve(waits.id)
    branch, last = desk.store().head(branch.id)
    assert (branch.status, last.status, last.output, last) == ("completed", "completed", "end", ended.checkpoint)
    assert desk.store().latest("t") == ended.checkpoint
    aborted = desk.cancel(desk.invoke(thread_id="t").checkpoint)
    assert (desk.store().latest("t"), aborted.status) == (aborted.checkpoint, "cancelled")
    assert [each.status for each in desk.store().branches()] == ["completed", "cancelled"]


def test_redis_is_asked_for_what_is_wanted_and_walks_no_keys(driver: Driver, tmp_path: Path) -> None:
    """P9: values come back as they were written, nothing scans, and nothing lapses by itself."""
    with ExitStack() as stack:
        server = RedisServer().start()  # one of its own: a server counts the commands of all its clients
        stack.callback(server.stop)
        client = stack.enter_context(redis_py.Redis.from_url(server.url()))
        place = Place("redis", tmp_path, server.url())
        stack.callback(place.close)
        desk = Shop(driver, place)
        found = life(desk)
        waits = desk.invoke(thread_id="u").checkpoint
        store = desk.store(ttl=5.0)
        assert (store.latest("t"), store.load(waits.id)) == (found[-1], waits)
        assert len(store.list()) > len(found)
        assert [item.checkpoint_id for item in store.pending(thread_id="u")] == [waits.id]
        asked = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
        assert "evalsha" in asked
        assert not asked & {"keys", "scan", "expire", "pexpire", "setex"}
        assert {client.ttl(key) for key in client.scan_iter()} == {-1}


def test_a_url_says_which_store_it_is(driver: Driver, tmp_path: Path) -> None:
    """P10: by its scheme, and each is a whole store. C8."""
    kinds = {"memory": MemoryStore, "sqlite": SQLiteStore, "postgres": PostgresStore, "redis": RedisStore}
    for kind, expected in kinds.items():
        with place_of(kind, tmp_path) as place, open_store(place.url) as store:
            assert type(store) is expected
            assert type(store).__abstractmethods__ == frozenset()
            agent = phronomy.Agent(name="clerk", model=ScriptedModel(["hello"]), store=store)
            driver.invoke(agent, "hi", thread_id="t")
            assert [branch.status for branch in store.branches(thread_id="t")] == ["completed"]
    with pytest.raises(StoreError, match="known"):
        open_store("mongodb://x")


def test_what_is_set_is_used_and_no_ttl_takes_what_waits(desk: Shop) -> None:
    """P11: an hour of approval, a second of keeping: the ended goes, what waits stays for as long as it takes. C9."""
    desk.script([], desk.tool("pay", approval_timeout=3 * HOUR, on_expiry="stay"))
    desk.model = ScriptedModel.by_turn([*pays(1), "end"])
    ended = desk.approve(desk.invoke(thread_id="a").checkpoint)
    waits = desk.invoke(thread_id="b").checkpoint
    [item] = waits.pending
    assert item.expires_at is not None
    assert (item.expires_at - item.requested_at).total_seconds() == 3 * HOUR
    for hours in (1, 2, 24 * 365):
        desk.later = hours * HOUR
        agent = desk.agent(store=desk.store(ttl=1.0))
        desk.driver.call(agent, "recover_all")
        assert agent.store.prune(older_than=0.0, keep_labeled=False) == agent.store.clear() == 0
        assert [each.run_id for each in agent.store.branches()] == [waits.run_id]
        assert [each.checkpoint_id for each in agent.store.pending()] == [waits.id]
    with pytest.raises(CheckpointNotFound):
        desk.store().load(ended.checkpoint.id)
    assert desk.approve(waits.id).status == "completed"


def test_order_does_not_hang_on_the_clock(desk: Shop) -> None:
    """P12: all in one moment, the order is that of what happened; what is stored has a version and a digest."""
    desk.script([], desk.tool("pay"))
    desk.model = ScriptedModel.by_turn([*pays(1, 2), "end"])

    def store() -> Any:
        made = desk.store()
        made.clock = lambda: 1e9
        return made

    chain = []
    for _ in range(4):
        result = desk.driver.invoke(desk.agent(store=store()), "go", thread_id="t")
        while result.suspended:
            result = desk.driver.resume(desk.agent(store=store()), result.checkpoint, approved=True)
        chain.append(result.checkpoint)
    found = store().history(chain[-1].id)
    assert [each.id for each in found if each.ended] == [each.id for each in chain]
    assert [each.parent_id for each in found[1:]] == [each.id for each in found[:-1]]
    assert store().latest("t").id == chain[-1].id
    assert [branch.id for branch in store().branches(thread_id="t")] == [each.branch_id for each in chain]
    waiting = [desk.driver.invoke(desk.agent(store=store()), "go").checkpoint for _ in range(5)]
    assert [item.approval for item in store().pending()] == [item for each in waiting for item in each.pending]
    assert [item.approval for item in store().pending(newest=True)][::-1] == [
        item.approval for item in store().pending()
    ]
    text = chain[-1].model_dump_json()
    assert (chain[-1].version, chain[-1].digest in text) == (1, True)
    for old, new in (('"version":1', '"version":2'), ("pay 1 is done", "pay 1 is undone")):
        assert old in text
        with pytest.raises(CheckpointError):
            Checkpoint.model_validate_json(text.replace(old, new, 1))


def test_a_clock_that_goes_back_loses_no_turn(desk: Shop) -> None:
    """P12: the next turn was made where the time is a minute behind; the one after it goes on from there all the same."""
    desk.script(["one", "two", "three"])
    for late in (0.0, -60.0, -30.0):
        desk.later = late
        last = desk.invoke("go", thread_id="t")

    assert outline(last) == [line for said in ("one", "two", "three") for line in ("user: go", f"assistant: {said}")]
    assert desk.store().latest("t") == last.checkpoint
