"""Drawings say what happened, read well, and are what they are: whatever a name holds, it is text in its box."""

from __future__ import annotations

import re
import sys
from itertools import combinations, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from drivers import decide_first
from hypothesis import given
from hypothesis import strategies as st
from test_log import AT, Writing
from test_rows import chain, write

from phronomy import Agent, CheckpointNotFound, ConfigurationError, MemoryStore, ModelError, Principal, Reject, tool
from phronomy.observability.drawings.drawing import flow_mermaid, flow_svg, tree_mermaid, tree_svg
from phronomy.observability.drawings.picture import Arrow, Box, Picture, on_one_line
from phronomy.observability.drawings.svg import Layout
from phronomy.records.calls import Call
from phronomy.records.checkpoint import pending_of
from phronomy.stores import Store
from phronomy.testing import ScriptedModel, call

PAGE = Path(__file__).parents[1] / "docs" / "drawing.md"
SVG = "{http://www.w3.org/2000/svg}"


@tool(requires_approval=True)
def refund(n: int) -> str:
    """Refund."""
    return f"refunded {n} of sk-canary-31337"


@tool
def look() -> str:
    """Look."""
    return "seen"


def an_agent(store: Store, *script: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(name="desk", model=ScriptedModel.by_turn([*script]), tools=[refund, look], store=store, **options)


def asks(*numbers: int) -> list[Any]:
    return [call("refund", {"n": n}) for n in numbers]


def drawn(store: Store, run_id: str) -> str:
    """The statements of the tree but the first two and the styles, with ids by the order in which they come."""
    lines = [line.strip() for line in tree_mermaid(store, run_id).splitlines()]
    assert lines[:2] == ["flowchart TD", f"accTitle: Run {run_id}"]
    text = "\n".join(line for line in lines[2:] if not line.startswith("classDef "))
    ids = dict.fromkeys(re.findall(r"ckpt_[0-9a-f]{8}\b", text))
    for number, id in enumerate(ids):
        text = text.replace(id, f"c{number}")
    return text


def texts(svg: str) -> list[list[str]]:
    """The lines in each box."""
    return [[line.text or "" for line in box.iter(f"{SVG}text")] for box in ElementTree.fromstring(svg).iter(f"{SVG}g")]


# The tree of a run


def test_a_run_is_drawn_with_its_stops_and_decisions() -> None:
    store = MemoryStore()
    agent = an_agent(store, [call("look")], [call("look"), *asks(1, 2)], "done")
    asked = agent.invoke("go").checkpoint
    one = agent.resume(asked, decisions=decide_first(asked), by="ann").checkpoint
    agent.resume(one, approved=False, by=Principal(id="b", name="Bob Grün"))
    assert drawn(store, asked.run_id).splitlines() == [
        'n0["0: input<br/>c0"]',
        'n1["1: model asks for look<br/>c1"]',
        'n2["2: settled: look<br/>c2"]',
        'n3{{"3: model asks for look, 2 x refund<br/>waits for 2 x refund<br/>c3"}}',
        'n4{{"4: settled: look<br/>waits for 2 x refund<br/>c4"}}',
        'n5{{"5: refund approved by ann<br/>waits for refund<br/>c5"}}',
        'n6{{"6: settled: refund<br/>waits for refund<br/>c6"}}',
        'n7("7: refund rejected by Bob Gr#252;n #40;b#41;<br/>c7")',
        'n8(["8: model replied, completed<br/>c8"])',
        *(f"n{place} --> n{place + 1}" for place in range(8)),
        "class n3,n4,n6 stop",
        "class n7 decision",
        "class n5 partial",
        "class n8 over",
        "class n8 here",
    ]


def test_forks_are_branches() -> None:
    store = MemoryStore()
    agent = an_agent(store, asks(1), "done")
    asked = agent.invoke("go").checkpoint
    fork = agent.fork(asked, label='care"ful <b>')
    agent.resume(fork, approved=False, by="bob")
    agent.resume(asked, approved=True, by="ann")
    other = agent.fork(asked)
    assert drawn(store, asked.run_id).splitlines() == [
        'n0["0: input<br/>c0"]',
        'n1{{"1: model asks for refund<br/>waits for refund<br/>c1"}}',
        'n2("2: refund approved by ann<br/>c2")',
        'n3["3: settled: refund<br/>c3"]',
        'n4(["4: model replied, completed<br/>c4"])',
        'n5{{"2: fork<br/>waits for refund<br/>label: care#34;ful #60;b#62;<br/>c5"}}',
        'n6("3: refund rejected by bob<br/>c6")',
        'n7(["4: model replied, completed<br/>c7"])',
        'n8{{"2: fork<br/>waits for refund<br/>now suspended<br/>c8"}}',
        "n0 --> n1",
        "n1 --> n2",
        "n2 --> n3",
        "n3 --> n4",
        "n1 -.-> n5",
        "n5 --> n6",
        "n6 --> n7",
        "n1 -.-> n8",
        "class n1,n5,n8 stop",
        "class n2,n6 decision",
        "class n4,n7 over",
        "class n4,n7,n8 here",
    ]
    svg = tree_svg(store, asked.run_id)
    assert texts(svg)[5][:3] == ["2: fork", "waits for refund", 'label: care"ful <b>']
    titles = [title.text for title in ElementTree.fromstring(svg).iter(f"{SVG}title")]
    assert titles[0] == f"Run {asked.run_id}"
    assert titles[-1] == f"2: fork, waits for refund, now suspended, {other.id}"
    assert "canary" not in svg + tree_mermaid(store, asked.run_id)


def told(store: Store, run_id: str) -> list[str]:
    """What the boxes say, without their ids."""
    return [" | ".join(lines[:-1]) for lines in texts(tree_svg(store, run_id))]


def test_each_way_to_end_is_told() -> None:
    store = MemoryStore()
    agent = an_agent(store, asks(1), "done")
    first, second, third = (agent.invoke("go", thread_id=thread).checkpoint for thread in ("a", "b", "c"))
    agent.cancel(first, by="ann")
    agent.invoke("and?", thread_id="b", on_pending="supersede")
    agent.resume(third, decisions={third.pending[0].id: Reject(then="end")})
    assert told(store, first.run_id)[2:] == ["2: settled: refund", "3: cancelled by ann"]
    assert told(store, second.run_id)[2:] == ["2: settled: refund", "3: superseded"]
    assert told(store, third.run_id)[2:] == ["2: refund rejected", "3: rejected"]


def test_a_failure_is_told_at_the_head() -> None:
    store = MemoryStore()
    agent = an_agent(store, ModelError("down"), "done")
    with pytest.raises(ModelError) as failed:
        agent.invoke("go")
    assert failed.value.checkpoint is not None
    text = drawn(store, failed.value.checkpoint.run_id)
    assert text.splitlines() == ['n0["0: input<br/>now failed<br/>c0"]', "class n0 failed", "class n0 here"]


def test_a_run_of_a_thread_begins_where_it_begins_and_a_fork_where_it_was_kept() -> None:
    store = MemoryStore()
    agent = an_agent(store, asks(1), "done")
    first = agent.invoke("go", thread_id="t").checkpoint
    agent.resume(first, approved=True)
    second = agent.invoke("more", thread_id="t").checkpoint
    assert told(store, second.run_id) == ["0: input", "1: model asks for refund | waits for refund | now suspended"]
    agent.fork(first)
    assert len(told(store, first.run_id)) == 6
    assert store.delete(store.head(first.branch_id)[1].id, force=True)
    assert told(store, first.run_id) == [f"2: goes on from {first.id[:13]} | waits for refund | now suspended"]


def test_what_waits_inside_another_run_names_its_path_and_why() -> None:
    store, writing = MemoryStore(), Writing(lambda options: options[0])
    waits = {"status": "pending", "requested_at": AT}
    inner = [
        pending_of(writing.call("5.0", pending_id=f"p{why}", why=why, **waits), "1.0")
        for why in ("approval", "breakpoint", "question", "outcome_unknown", "failed", "approval")
    ]
    (root,) = chain([None], "run_1")
    write(
        store,
        [
            root,
            root.evolve(id="c2", step=1, turn=1, calls=(writing.call("1.0", status="nested", waiting=tuple(inner)),)),
        ],
    )
    assert told(store, "run_1")[1].split(" | ") == [
        "1: next: pay",
        "waits for 2 x pay in 1.0",
        "stopped before pay in 1.0",
        "asked by pay in 1.0",
        "outcome unknown: pay in 1.0",
        "failed: pay in 1.0",
        "now completed",
    ]


def test_a_graph_is_drawn_by_its_waves() -> None:
    store = MemoryStore()
    root, *_ = chain([{"log": []}], "run_1")
    wave = root.evolve(
        id="ckpt_2",
        parent_id=root.id,
        step=1,
        turn=1,
        calls=tuple(Call(id=f"1.{n}", call_id=str(n), name=name) for n, name in enumerate(["plan", *["work"] * 9])),
    )
    over = wave.evolve(id="ckpt_3", parent_id=wave.id, step=2, turn=2, calls=(), ended="completed")
    write(store, [root, wave, over])
    assert told(store, "run_1") == ["0: input", "1: next: plan, 9 x work", "2: no node left, completed"]


def test_a_node_that_failed_is_told_beside_what_waits() -> None:
    store, writing = MemoryStore(), Writing(lambda options: options[0])
    (root,) = chain([None], "run_1")
    failed = writing.call("1.0", status="failed")
    asks = writing.call("1.1", status="pending", pending_id="p1", requested_at=AT)
    both = root.evolve(id="c2", parent_id=root.id, step=1, turn=1, calls=(failed, asks))
    write(store, [root, both, both.evolve(id="c3", parent_id="c2", step=2, calls=(failed,))])
    assert [" | ".join(lines) for lines in texts(tree_svg(store, "run_1"))][1:] == [
        "1: next: 2 x pay | waits for pay | failed: pay | c2",
        "2: settled: pay | failed: pay | now completed | c3",
    ]
    assert "class n2 failed" in tree_mermaid(store, "run_1")


def test_an_unknown_run_is_an_error() -> None:
    for draw in (tree_mermaid, tree_svg):
        with pytest.raises(CheckpointNotFound, match="the store knows no run run_0"):
            draw(MemoryStore(), "run_0")


def test_the_drawings_of_the_page_are_those_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    blocks = re.findall(r"^```(python|mermaid)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "mermaid", "python", "mermaid"]
    for kind, block in blocks:
        if kind == "python":
            exec(block, module.__dict__)
    assert [alike(block) for kind, block in blocks if kind == "mermaid"] == [alike(module.drawn), alike(module.flow)]


def alike(text: str) -> str:
    """The text with ids by the order in which they come."""
    ids = dict.fromkeys(re.findall(r"\b(?:ckpt|run)_[0-9a-f]+", text))
    for number, id in enumerate(ids):
        text = text.replace(id, f"id{number}")
    return text


# The shape of a graph

NODES = ["plan", "search", "write", "review"]
EDGES = [
    ("__start__", "plan", None, False),
    ("plan", "search", "needs facts", True),
    ("plan", "write", "knows enough", True),
    ("search", "plan", None, False),
    ("write", "review", None, False),
    ("review", "write", "rework", True),
    ("review", "__end__", "good", True),
    ("review", "__end__", "tired", True),
]


def test_a_graph_reads_as_it_was_built() -> None:
    text = flow_mermaid(NODES, EDGES, marked={"review": "stopped before", "search": "failed"})
    assert [line.strip() for line in text.splitlines()] == [
        "flowchart TD",
        "accTitle: Graph",
        'n0(["start"])',
        'n1["plan"]',
        'n2["search<br/>failed"]',
        'n3["write"]',
        'n4{{"review<br/>stopped before"}}',
        'n5(["end"])',
        "n0 --> n1",
        'n1 -.->|"needs facts"| n2',
        'n1 -.->|"knows enough"| n3',
        "n2 --> n1",
        "n3 --> n4",
        'n4 -.->|"rework"| n3',
        'n4 -.->|"good, tired"| n5',
        "classDef stop fill:#fff3cd,stroke:#9a6700,color:#1b1f24",
        "class n4 stop",
        "classDef over fill:#eaeef2,stroke:#57606a,color:#1b1f24",
        "class n0,n5 over",
        "classDef failed fill:#ffebe9,stroke:#cf222e,color:#1b1f24",
        "class n2 failed",
        "classDef here stroke-width:3px",
        "class n2,n4 here",
    ]
    assert texts(flow_svg(NODES, EDGES, marked={"review": "stopped before"})) == [
        ["start"], ["plan"], ["search"], ["write"], ["review", "stopped before"], ["end"],
    ]  # fmt: skip


@pytest.mark.parametrize("draw", [flow_mermaid, flow_svg])
def test_what_is_no_node_cannot_be_drawn(draw: Any) -> None:
    with pytest.raises(ConfigurationError, match="no node 'lost'"):
        draw(["a"], [("a", "lost", None, False)])
    with pytest.raises(ConfigurationError, match="no node 'lost'"):
        draw(["a"], [], marked={"lost": "failed"})


def test_nothing_at_all_is_drawn_as_nothing() -> None:
    assert flow_mermaid([], []) == "flowchart TD\n    accTitle: Graph\n"
    assert texts(flow_svg([], [])) == []


# Whatever a name holds

HOSTILE = [
    '"]; click n0 call alert() %%{init: {}}%%', "<script>alert(1)</script>", "a\nn9[b]", "#quot;", "end", "]]>", "&amp;", "`x`",
    "1. one", "- one", "**b**", "__start", "www.example.com", "\ud800", "\x00\x1b[31m", "\u202egnp.exe", "\uffff", "", " ", "\u2028",
    "x" * 500,
]  # fmt: skip
names = st.sampled_from(HOSTILE) | st.text(max_size=20)

SAFE = r"(?:[A-Za-z0-9 ,:]|(?<=[A-Za-z0-9])[_-](?=[A-Za-z0-9])|#\d{1,7};)*"
LABEL = rf'"(?!"){SAFE}(?:<br/>{SAFE})*"'
STATEMENT = re.compile(
    rf"    (?:accTitle: [A-Za-z0-9 ,_?-]*"
    rf"|n\d+(?:\[{LABEL}\]|\({LABEL}\)|\(\[{LABEL}\]\)|\{{\{{{LABEL}\}}\}})"
    rf"|n\d+ (?:-->|-\.->)(?:\|{LABEL}\|)? n\d+"
    rf"|class n\d+(?:,n\d+)* [a-z]+"
    rf"|classDef [a-z]+ [a-z0-9#:,-]+)",
    re.ASCII,
)


@st.composite
def flows(draw: st.DrawFn, name: st.SearchStrategy[str] = names) -> tuple[list[str], list[Any], dict[str, str]]:
    nodes = draw(st.lists(name, min_size=1, max_size=9, unique=True))
    node = st.sampled_from([*nodes, "__start__", "__end__"])
    edges = draw(st.lists(st.tuples(node, node, st.none() | name, st.booleans()), max_size=16))
    return nodes, edges, draw(st.dictionaries(st.sampled_from(nodes), name, max_size=2))


@given(flows())
def test_whatever_a_name_holds_a_flowchart_has_the_statements_that_it_has(flow: Any) -> None:
    nodes, edges, marked = flow
    text = flow_mermaid(nodes, edges, marked=marked)
    assert text.isascii()
    header, *lines = text.removesuffix("\n").split("\n")
    assert header == "flowchart TD"
    assert [line for line in lines if not STATEMENT.fullmatch(line)] == []
    boxes = [line for line in lines if re.match(r"    n\d+[\[({]", line)]
    arrows = [line for line in lines if re.match(r"    n\d+ -", line)]
    ends = {each for source, target, *_ in edges for each in (source, target)} & {"__start__", "__end__"} - {*nodes}
    assert len(boxes) == len(nodes) + len(ends)
    assert len(arrows) == len({(source, target, dashed) for source, target, _, dashed in edges})


@given(flows())
def test_whatever_a_name_holds_an_svg_is_well_formed_and_holds_it_as_text(flow: Any) -> None:
    nodes, edges, marked = flow
    text = flow_svg(nodes, edges, marked=marked)
    assert text.isascii()
    root = ElementTree.fromstring(text)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        "svg", "title", "defs", "marker", "path", "rect", "polygon", "g", "text",
    }  # fmt: skip
    assert {name for each in root.iter() for name in each.attrib}.isdisjoint({"href", "onload", "onclick", "style"})
    first = {lines[0] for lines in texts(text)}
    assert first >= {on_one_line(name) for name in nodes if name not in ("__start__", "__end__")}
    assert len(ElementTree.tostring(root)) > 0


def test_no_text_is_shown_that_would_not_show() -> None:
    assert on_one_line("a\u202e\x1b\nb\ud800 \t c") == "a\ufffd\ufffd b\ufffd c"
    assert on_one_line("x" * 49) == "x" * 47 + "\u2026"
    assert on_one_line("x" * 48) == "x" * 48


# The layout


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    count = draw(st.integers(1, 12))
    place = st.integers(0, count - 1)
    ways = draw(st.lists(st.tuples(place, place), max_size=24, unique=True))
    label = st.sampled_from(["", "", "so", "a longer label", "w" * 60])
    boxes = tuple(Box(lines=tuple(draw(st.lists(label, min_size=1, max_size=4)))) for _ in range(count))
    return Picture(
        title="", boxes=boxes, arrows=tuple(Arrow(source=one, target=other, label=draw(label)) for one, other in ways)
    )


@given(pictures())
def test_boxes_do_not_touch_and_arrows_lead_down_or_around(picture: Picture) -> None:
    layout = Layout(picture)
    frames = [layout.frame(place) for place in range(len(picture.boxes))]
    for (left, top, width, height), (x, y, wide, high) in combinations(frames, 2):
        assert left + width < x or x + wide < left or top + height < y or y + high < top
    for left, top, width, height in frames:
        assert left > 0 and top > 0 and left + width < layout.width and top + height < layout.height
    for arrow in picture.arrows:
        assert (layout.layer[arrow.source] < layout.layer[arrow.target]) == (arrow not in layout.turns)
        numbers = [int(number) for number in re.findall(r"-?\d+", layout.path(arrow))]
        assert min(numbers) >= 0 and max(numbers) <= max(layout.width, layout.height)
    for arrow in picture.arrows:
        y, layer = layout.label(arrow)[1] if arrow.label else 0, layout.layer[arrow.source]
        if arrow.label and arrow in layout.turns:  # those that turn back do so above where the others set out
            assert layout.bottom[layer] < y <= layout.leave[layer]
        elif arrow.label:
            assert layout.leave[layer] < y < layout.top[layer + 1]
    labels = sorted(layout.label(arrow)[1] for arrow in picture.arrows if arrow.label and arrow not in layout.turns)
    assert all(later - earlier >= 12 for earlier, later in pairwise(labels))
    assert [Layout(picture).path(arrow) for arrow in picture.arrows] == [layout.path(arrow) for arrow in picture.arrows]


@given(pictures())
def test_no_arrow_runs_through_a_box(picture: Picture) -> None:
    """A track has a lane of its own in each layer that it passes."""
    layout = Layout(picture)
    used = [(layer, lane) for layer, lane in zip(layout.layer, layout.lane, strict=True)]
    used += [(layer, lane) for (_, layer), lane in layout.tracks.items()]
    assert len(used) == len(set(used))
    assert all(
        x > max(layout.frame(box)[0] + layout.frame(box)[2] for box in range(len(picture.boxes)))
        for x in layout.beside.values()
    )


def line_of(count: int) -> tuple[list[str], list[Any]]:
    nodes = [f"n{number}" for number in range(count)]
    return nodes, [(one, other, None, False) for one, other in pairwise(["__start__", *nodes, "__end__"])]


def test_a_trunk_runs_straight_and_a_branch_beside_it() -> None:
    boxes = tuple(Box(lines=("x",)) for _ in range(6))
    arrows = tuple(Arrow(source=one, target=other) for one, other in [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5)])
    layout = Layout(Picture(title="", boxes=boxes, arrows=arrows))
    assert (layout.layer, layout.lane) == ([0, 1, 2, 3, 2, 3], [0, 0, 0, 0, 1, 1])


def test_long_chains_and_wide_fans_are_drawn() -> None:
    nodes, edges = line_of(1200)
    fan = [("hub", node, None, True) for node in nodes] + [(node, "__end__", None, False) for node in nodes]
    assert len(texts(flow_svg(nodes, edges))) == len(nodes) + 2
    assert len(texts(flow_svg(["hub", *nodes], fan))) == len(nodes) + 2
    assert flow_svg(nodes, edges) == flow_svg(nodes, edges)
