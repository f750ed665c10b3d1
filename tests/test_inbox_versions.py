"""The versions of a run in the inbox: its tree as a picture and a list, one checkpoint, what two differ in, and what is done to runs.

Each scene is told on the pages, or by the API, which are one service: that is shown once for each.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from xml.etree import ElementTree

import pytest
from inbox_api_scenes import Api, api_of, inbox_by_token, problem
from inbox_scenes import FOUR, RITA, ByHeader
from page_reader import Element
from page_scenes import Pages
from pydantic import BaseModel

from phronomy import Agent, Approval, Approve, Breakpoint, MemoryStore, tool
from phronomy.graph import END, START, StateGraph
from phronomy.inbox import operating, versions
from phronomy.inbox.api import versions as told
from phronomy.inbox.auth.identity import DEFAULT_SCOPES, SCOPES
from phronomy.inbox.auth.limits import Limits
from phronomy.inbox.pages.records import versions as pages_of
from phronomy.inbox.versions import SHOWN, read_versions
from phronomy.records.checkpoint import Checkpoint
from phronomy.stores.base import Store
from phronomy.stores.log.log import row_entry
from phronomy.stores.rows import Append
from phronomy.testing import ScriptedModel, call

ALL = FOUR | {"operate", "cancel"}
HOSTILE = 'مراجعة \u202egnp.exe <b onclick="x">bold</b> p\u0430ypal'


class Stepped:
    """An agent that looks twice and then pays, with a breakpoint before each call; and its store."""

    def __init__(self, store: Store | None = None, *, gate: Any = False, **options: Any) -> None:
        self.done: list[str] = []
        self.store = store if store is not None else MemoryStore()
        scene = self

        @tool(redact={"pin"})
        def look(n: int, pin: str = "") -> str:
            """Look."""
            scene.done.append(f"look {n}")
            return f"seen {n}"

        @tool(requires_approval=gate)
        def pay(euros: int) -> str:
            """Pay."""
            scene.done.append(f"pay {euros}")
            return f"paid {euros}"

        turns = [call("look", {"n": 1, "pin": "hush-1"}), call("pay", {"euros": 5}), "Done."]
        stops = options.pop("breakpoints", [Breakpoint("pre_tool_call")])
        self.agent: Agent[Any, str] = Agent(
            name="desk",
            model=ScriptedModel.by_turn(turns),
            tools=[look, pay],
            store=self.store,
            breakpoints=stops,
            **options,
        )

    def begin(self, **options: Any) -> Checkpoint:
        return self.agent.invoke("Go", **options).checkpoint

    def pages(self, scopes: Any = ALL, **options: Any) -> Pages:
        return Pages(self.store, agents=self.agent, scopes=lambda _: scopes, **options)

    def api(self, **options: Any) -> Api:
        return api_of(self.store, agents=self.agent, **options)


@pytest.fixture
def scene() -> Stepped:
    return Stepped()


def links(page: Element) -> list[str]:
    return [each.attributes["href"] for each in page.all("a")]


def operation(api: Api, run: str, what: str, checkpoint: str | None = None) -> dict[str, Any]:
    """An operation as the API offers it."""
    found = api.read(f"/runs/{run}/checkpoints/{checkpoint}" if checkpoint else f"/runs/{run}/operations")
    (one,) = [each for each in found["operations" if checkpoint else "items"] if each["what"] == what]
    return dict(one)


# Who may


PAGES = [
    ("/runs/{run}/versions", {"read"}),
    ("/runs/{run}/checkpoints/{ckpt}", {"read"}),
    ("/runs/{run}/compare?before={ckpt}&after={ckpt}", {"read"}),
    ("/runs/{run}/pause", {"operate", "read"}),
    ("/runs/{run}/cancel", {"cancel", "read"}),
    ("/runs/{run}/step?request={item}", {"operate", "decide", "read"}),
    ("/runs/{run}/checkpoints/{ckpt}/fork", {"operate", "read"}),
    ("/runs/{run}/checkpoints/{ckpt}/restore", {"operate", "read"}),
]


@pytest.mark.parametrize(("path", "scopes"), PAGES)
def test_each_page_needs_its_scopes_and_shows_one_tenant(scene: Stepped, path: str, scopes: set[str]) -> None:
    at = scene.begin()
    path = path.format(run=at.run_id, ckpt=at.id, item=at.pending[0].id)
    assert scene.pages().visitor().get(path).status_code == 200
    assert scene.pages().visitor(None).get(path).status_code == 303
    for scope in scopes:
        without = scene.pages(auth=ByHeader(RITA, scopes=set(SCOPES) - {scope}))
        assert without.visitor().get(path).status_code == 403
        if scopes != {"read"}:
            form = {"key": "k", "digest": "d", "request": at.pending[0].id}
            assert without.visitor().post(path.partition("?")[0], data=form).status_code == 403
    other = scene.pages(auth=ByHeader(RITA, tenant="other")).visitor().get(path)
    assert other.status_code == 404 and at.id not in other.text


def test_nobody_may_operate_runs_unless_it_is_said(scene: Stepped) -> None:
    """A new scope for operating runs, which is given to nobody by default; without it, nothing leads there."""
    assert "operate" in SCOPES and "operate" not in DEFAULT_SCOPES
    at = scene.begin()
    pages = scene.pages(DEFAULT_SCOPES)
    for path in (f"/runs/{at.run_id}", f"/runs/{at.run_id}/checkpoints/{at.id}", f"/requests/{at.pending[0].id}"):
        found = links(pages.page(path))
        assert not [
            each for each in found if each.endswith(("/pause", "/cancel", "/fork", "/restore")) or "/step" in each
        ]
    api = scene.api(scopes=lambda _: DEFAULT_SCOPES)
    assert api.read(f"/runs/{at.run_id}/operations") == {"items": []}
    assert api.read(f"/runs/{at.run_id}/checkpoints/{at.id}")["operations"] == []
    sent = api.send(f"/runs/{at.run_id}/step", {"request": at.pending[0].id, "digest": "x"})
    assert problem(sent) == (403, "forbidden") and scene.done == []


def test_a_checkpoint_is_of_the_run_in_the_address(scene: Stepped) -> None:
    one, other = scene.begin(), scene.begin()
    visitor = scene.pages().visitor()
    for path in (
        f"/runs/{one.run_id}/checkpoints/{other.id}",
        f"/runs/{one.run_id}/checkpoints/{other.id}/fork",
        f"/runs/{one.run_id}/compare?before={one.id}&after={other.id}",
        f"/runs/{one.run_id}/step?request={other.pending[0].id}",
        f"/runs/{one.run_id}/checkpoints/ckpt_none",
        f"/runs/{one.run_id}/checkpoints/%00",
        "/runs/run_none/versions",
        "/runs/%00/versions",
        "/runs/%00/pause",
    ):
        assert visitor.get(path).status_code == 404, path
    assert visitor.get(f"/runs/{one.run_id}/versions?before=-1").status_code == 422


# Looking


def test_the_tree_is_a_picture_and_a_list_that_say_the_same(scene: Stepped) -> None:
    at = scene.begin()
    fork = scene.agent.fork(at, label=HOSTILE)
    page = scene.pages().page(f"/runs/{at.run_id}/versions")
    pictured = [each.attributes["href"] for each in page.one("svg").all("a")]
    listed = [each.one("a").attributes["href"] for each in page.all("li", class_="row")]
    assert sorted(pictured) == sorted(listed) and len(listed) == 3
    assert f"/runs/{fork.branch_id}/checkpoints/{fork.id}" in listed
    assert [each.text for each in page.all("h3")] == ["2: fork", "1: model asks for look", "0: input"]
    assert page.one("svg").attributes["role"] == "group" and page.all("b") == [] and page.all("script") == []
    # Nothing in a label can turn, hide or end anything; what looks like another letter is written out.
    text = scene.pages().visitor().get(f"/runs/{at.run_id}/versions").text
    drawn = text[text.index("<svg") : text.index("</svg>", text.index('class="tree"')) + 6]
    svg = drawn[drawn.rindex("<svg ") :]
    assert "\u202e" not in text and "style=" not in text
    assert "onclick" not in {name for each in ElementTree.fromstring(svg).iter() for name in each.attrib}
    # The fork's page has the chain that led to it, and where the run itself has gone on from there.
    scene.agent.checkpoint(at.run_id, label="later")
    other = scene.pages().page(f"/runs/{fork.branch_id}/versions")
    assert [each.text for each in other.all("h3")][:3] == ["2: fork", "1: model asks for look", "0: input"]
    assert f"/runs/{at.run_id}/versions" in [each.attributes["href"] for each in other.one("svg").all("a")]
    # Reading the picture by the API gives the same.
    found = scene.api().read(f"/runs/{at.run_id}/versions")
    told = [each["lines"][0] for each in found["items"]]
    assert told == ["0: input", "1: model asks for look", "2: went on", "2: fork"] and found["forks"] == []
    assert [each["aside"] for each in found["items"]] == [False, False, False, True]


def lengthened(store: Store, at: Checkpoint, count: int) -> None:
    """Write so many more checkpoints of a run, in one write."""
    branch, now = store.head(at.branch_id)[0], at.sealed()
    rows = []
    for number in range(count):
        following = now.evolve(id=f"ckpt_{number:024x}", parent_id=now.id, step=now.step + 1, label=f"look {number}")
        rows.append(row_entry(now, following, {}))
        now = following
    change = Append(branch_id=branch.id, seq=branch.seq, entries=tuple(rows), head=now.id, take="me", release=True)
    store.append(change)


def test_a_long_run_is_cut_and_every_part_is_a_link_away(scene: Stepped) -> None:
    """A thousand checkpoints: each page shows a part, in a bounded time, and together the pages show them all."""
    store, at = scene.store, scene.begin()
    lengthened(store, at, 998)
    pages = scene.pages()
    began = time.perf_counter()
    page = pages.page(f"/runs/{at.run_id}/versions")
    took = time.perf_counter() - began
    assert took < 5 and "976 to 1,000 of 1,000" in page.text  # a tenth of a second where nothing else runs
    assert len(page.all("li", class_="row")) == SHOWN == len(page.one("svg").all("a")) - 1
    seen, parts = [], 0
    view = read_versions(store, at.run_id)
    while True:
        seen[:0] = [each.checkpoint.id for each in view.chain]
        parts += 1
        if not view.begin or parts == 3:
            break
        view = read_versions(store, at.run_id, before=view.begin)
    assert seen == [each.id for each in store.history(store.head(at.run_id)[1].id)][-3 * SHOWN :]
    middle = pages.page(f"/runs/{at.run_id}/versions?before=500")
    found = [each for each in links(middle) if "before=" in each]
    assert found.count(f"/runs/{at.run_id}/versions?before=475") == 2, "in the picture, and below the list"
    assert found.count(f"/runs/{at.run_id}/versions?before=525") == 2
    first = pages.page(f"/runs/{at.run_id}/versions?before=20")
    assert "0: input" in first.text and not [each for each in links(first) if each.endswith("before=0")]


def test_the_page_of_a_long_run_tells_its_end(scene: Stepped) -> None:
    """In a bounded time, with a link to all that came before."""
    store, at = scene.store, scene.begin()
    lengthened(store, at, 998)
    scene.agent.resume(store.head(at.run_id)[1], approved=True, by="rita")
    began = time.process_time()
    story = scene.pages().page(f"/runs/{at.run_id}").one("section", aria_labelledby="story")
    took = time.process_time() - began
    assert took < 3, "a fifth of a second, also of ten thousand, where nothing else runs"
    assert "The newest of many" in story.text and links(story) == [f"/runs/{at.run_id}/versions"]
    told = [row.all("td")[1].text for row in story.one("tbody").all("tr")]
    assert len(told) > 5 and any("rita" in each.casefold() for each in told), told


def test_many_and_long_forks_are_places_that_lead_on(scene: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    at = scene.begin()
    monkeypatch.setattr(versions, "FORKS", 3)
    monkeypatch.setattr(versions, "WHOLE", 2)
    forks = [scene.agent.fork(at, label=f"fork {number}") for number in range(6)]
    for number in range(3):
        scene.agent.checkpoint(forks[0].branch_id, label=f"more {number}")
    inner = scene.agent.fork(forks[1], label="inner")
    found = read_versions(scene.store, at.run_id)
    assert [each.branch.label for each in found.forks if each.at is not None][:1] == ["fork 0"]
    assert len(found.beside) + len(found.forks) <= 6 and found.more > 0
    assert found.forks[0].at == at.id
    assert inner.branch_id in {each.id for each in scene.store.branches(run_id=at.run_id)}
    page = scene.pages().page(f"/runs/{at.run_id}/versions")
    assert "fork: fork 0" in page.one("svg").text and f"And {found.more} more" in page.text
    assert f"/runs/{forks[0].branch_id}/versions" in links(page.one("svg"))
    assert len(read_versions(scene.store, forks[0].branch_id).chain) == 6


def test_a_checkpoint_shows_its_state_and_hides_what_is_secret(scene: Stepped) -> None:
    at = scene.begin()
    known = scene.pages().page(f"/runs/{at.run_id}/checkpoints/{at.id}")
    assert "hush" not in known.text and '"n": 1' in known.text and "lookwaits for a person" in known.text
    unknown = Pages(scene.store, scopes=lambda _: ALL).page(f"/runs/{at.run_id}/checkpoints/{at.id}")
    assert "hush" not in unknown.text and '"n": 1' not in unknown.text and "does not have the agent" in unknown.text
    for inbox in (scene.api(), api_of(scene.store)):
        text = inbox.get(f"/api/v1/runs/{at.run_id}/checkpoints/{at.id}").text
        assert "hush" not in text and "look" in text
    # Without the agent, only a fork is possible, which needs none.
    here = {
        each["what"]: each["why_not"] for each in api_of(scene.store).read(f"/runs/{at.run_id}/operations")["items"]
    }
    assert set(here) == {"pause", "cancel", "step"} and all("does not have the agent" in each for each in here.values())


class Counted(BaseModel):
    """What a graph counts."""

    n: int
    note: str = ""


def counting(store: Store, secret: str = "s3cret") -> Any:
    """A graph that counts, with a text in its state."""

    def one(state: Counted) -> dict[str, Any]:
        return {"n": state.n + 1, "note": f"{secret} {state.n}"}

    def two(state: Counted) -> dict[str, Any]:
        return one(state)

    made = StateGraph(Counted).add_node(one).add_node(two)
    made = made.add_edge(START, "one").add_edge("one", "two").add_edge("two", END)
    return made.compile(name="counting", store=store)


def test_the_state_of_a_graph_is_shown_where_the_graph_is_known() -> None:
    store = MemoryStore()
    graph = counting(store)
    end = graph.invoke({"n": 1, "note": ""}).checkpoint
    first, *_, middle, _ = store.history(end.id)
    for agents, is_seen in ((graph, True), ((), False)):
        pages = Pages(store, agents=agents, scopes=lambda _: ALL)
        page = pages.page(f"/runs/{end.run_id}/checkpoints/{middle.id}")
        assert ("s3cret" in page.text) == is_seen and ("does not have the graph" in page.text) != is_seen
        compared = pages.page(f"/runs/{end.run_id}/compare?before={first.id}&after={middle.id}")
        assert ("s3cret" in compared.text) == is_seen and "State" in compared.text
        api = api_of(store, agents=agents)
        found = api.read(f"/runs/{end.run_id}/diff", before=first.id, after=end.id)
        states = [each for each in found["items"] if each["kind"] == "state"]
        assert [each["hidden"] for each in states] == ([False] * 2 if is_seen else [True])
        if is_seen:
            assert {each["name"]: each["after"] for each in states} == {"/n": "3", "/note": '"s3cret 2"'}
    assert (
        "nothing goes on" not in page.text
        and "The run ends here" in pages.page(f"/runs/{end.run_id}/checkpoints/{end.id}").text
    )


def test_two_checkpoints_are_compared_a_part_at_a_time(scene: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_of, "DIFFERENCES", 4)
    at = scene.begin()
    api = scene.api()
    step = operation(api, at.run_id, "step")
    api.send(f"/runs/{at.run_id}/step", {"request": step["request"], "digest": step["digest"], "pace": "over"})
    first, *_, last = scene.store.history(scene.store.head(at.run_id)[1].id)
    path, kinds, seen = f"/runs/{at.run_id}/compare?before={first.id}&after={last.id}", [], 0
    while path:
        page = scene.pages().page(path)
        kinds += [each.text for each in page.all("h2")]
        seen += len(page.all("li")) + len(page.all("dt"))
        path = next((each.attributes["href"] for each in page.all("a", rel="next")), "")
    total = api.read(f"/runs/{at.run_id}/diff", before=first.id, after=last.id)["total"]
    assert seen == total and list(dict.fromkeys(kinds)) == list(
        dict.fromkeys(pages_of.KINDS[each.kind] for each in told_of(scene, first, last))
    )
    assert "hush" not in page.text
    same = scene.pages().page(f"/runs/{at.run_id}/compare?before={at.id}&after={at.id}")
    assert "Nothing differs" in same.text


def told_of(scene: Stepped, before: Checkpoint, after: Checkpoint) -> Any:
    """The differences as the service tells them."""

    class Looks:
        inbox = scene.pages().inbox.site
        store = scene.store

    return told.differences(Looks(), before, after)  # type: ignore[arg-type]


def test_an_answer_that_guardrails_hold_back_is_not_shown(scene: Stepped) -> None:
    at = Stepped(scene.store, breakpoints=[Breakpoint("pre_output_guardrails")]).begin()
    assert at.unguarded == "output" or at.pending
    path = f"/runs/{at.run_id}/checkpoints/{at.id}"
    view = scene.api().read(path)
    texts = [each["text"] for each in view["conversation"]["items"]]
    assert ("Done." in texts) == (at.unguarded != "output")


# Stepping, from stop to stop


def test_a_run_is_stepped_from_breakpoint_to_breakpoint_on_the_pages(scene: Stepped) -> None:
    """U6: steps from stop to stop; DIR-A09: a stop that is gone is refused, and nothing happens."""
    at = scene.begin()
    pages = scene.pages()
    item = at.pending[0]
    (there,) = [each for each in links(pages.page(f"/requests/{item.id}")) if "/step?" in each]
    assert there in links(pages.page(f"/runs/{at.run_id}"))
    page = pages.page(there)
    assert "hush-1" in page.text, "whoever decides sees what will run, in full"
    form = page.one("form", method="post")
    sent = pages.send(form, pace="over")
    assert (sent.status_code, scene.done) == (303, ["look 1"])
    assert sent.headers["location"] == f"/runs/{at.run_id}?said=step#state"
    # Sent again under its key, it steps no further; with another key, what was shown is gone.
    before = scene.store.head(at.run_id)[1].id
    assert pages.send(form, pace="over").status_code == 303 and scene.store.head(at.run_id)[1].id == before
    assert pages.send(form, pace="over", key="another").status_code == 404
    for _ in range(20):
        branch, head = scene.store.head(at.run_id)
        if branch.status != "suspended":
            break
        (there,) = [each for each in links(pages.page(f"/runs/{at.run_id}")) if "/step?" in each]
        assert pages.send(pages.page(there).one("form", method="post")).status_code == 303
    assert (branch.status, scene.done) == ("completed", ["look 1", "pay 5"])
    assert "It went on." in pages.page(f"/runs/{at.run_id}?said=step").text
    assert {each.by.id for each in head.decisions if each.by is not None} == {"rita"}
    assert {each.channel for each in head.decisions} == {"inbox"}


def test_a_step_passes_no_approval_and_is_judged_by_the_approval() -> None:
    """Law 1: what a step lets go on is the breakpoint, and a call that needs an approval waits for one."""
    scene = Stepped(gate=Approval(by="lead"))
    at = scene.begin()
    api = scene.api()
    for _ in range(20):
        steps = [each for each in api.read(f"/runs/{at.run_id}/operations")["items"] if each["what"] == "step"]
        if not steps:
            break
        sent = api.send(f"/runs/{at.run_id}/step", {"request": steps[0]["request"], "digest": steps[0]["digest"]})
        assert sent.status_code == 202, sent.text
    assert scene.done == ["look 1"]
    (item,) = scene.store.head(at.run_id)[1].pending
    assert (item.why, item.tool_name) == ("approval", "pay")
    refused = scene.pages().visitor().get(f"/runs/{at.run_id}/step?request={item.id}")
    assert (
        refused.status_code == 200
        and "This is no breakpoint" in refused.text
        and '<form method="post" action="/runs' not in refused.text
    )


def test_what_is_done_is_what_was_shown(scene: Stepped) -> None:
    at = scene.begin()
    api = scene.api()
    step, fork = operation(api, at.run_id, "step"), operation(api, at.run_id, "fork", at.id)
    body = {"request": step["request"], "digest": "0" * 64}
    assert problem(api.send(f"/runs/{at.run_id}/step", body)) == (412, "stale")
    assert problem(api.send(f"/runs/{at.run_id}/pause", {"digest": "x"})) == (412, "stale")
    pause = operation(api, at.run_id, "pause")
    assert problem(api.send(f"/runs/{at.run_id}/pause", {"digest": pause["digest"]})) == (409, "refused")
    path = f"/runs/{at.run_id}/checkpoints/{at.id}/fork"
    assert problem(api.send(path, {"digest": step["digest"]})) == (412, "stale")
    assert len(scene.store.branches()) == 1 and scene.done == []
    # A key counts once, with its body.
    made = [api.send(path, {"digest": fork["digest"], "label": "a"}, key="k") for _ in range(2)]
    assert [each.status_code for each in made] == [201, 201] and made[0].json()["id"] == made[1].json()["id"]
    assert problem(api.send(path, {"digest": fork["digest"], "label": "b"}, key="k")) == (422, "key-reused")
    assert problem(api.send(path, {"digest": fork["digest"]}, key=None)) == (400, "key-missing")
    assert len(scene.store.branches()) == 2
    # A page that was read before the run went on says so, and keeps what was typed.
    pages = scene.pages()
    form = pages.page(f"/runs/{at.run_id}/cancel").one("form", method="post")
    scene.store.decide(at.pending[0].id, Approve(), by="otto", digest=at.pending[0].digest)
    scene.agent.recover_all()
    told = pages.sent(form, reason="too slow", status=412)
    assert "Nothing was done" in told.text and "has changed since you read it" in told.text
    assert "too slow" in told.one("textarea").text and scene.store.head(at.run_id)[0].status == "suspended"
    done = pages.send(told.one("form", method="post"))
    assert done.status_code == 303 and scene.store.head(at.run_id)[0].status == "cancelled"
    assert "The run is ended." in pages.page(f"/runs/{at.run_id}?said=cancel").text
    assert [each.reason for each in scene.store.audit() if each.kind == "cancel"] == ["too slow"]


@pytest.mark.parametrize("what", ["pause", "cancel"])
def test_what_has_changed_since_the_look_is_not_stopped(
    scene: Stepped, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on behind the check of the digest: the write is refused, and nothing is done to what nobody has seen."""
    at = scene.begin()
    if what == "pause":  # it is for a run that does not wait, such as a fork that nobody drives
        at = scene.agent.fork(scene.store.history(at.id)[0])
    look, asked = operating.offered_in, {"approved": True} if at.pending else {}

    async def late(*given: Any, **options: Any) -> Any:
        found = await look(*given, **options)
        await scene.agent.aresume(at, **asked)
        return found

    pages = scene.pages()
    form = pages.page(f"/runs/{at.branch_id}/{what}").one("form", method="post")
    monkeypatch.setattr(operating, "offered_in", late)
    told = pages.sent(form, reason="keep this", status=412)
    assert "Nothing was done" in told.text
    branch, head = scene.store.head(at.branch_id)
    assert branch.status == "suspended" and head.id != at.id
    assert [item.tool_name for item in head.pending] == ["pay" if what == "cancel" else "look"]
    assert [each.kind for each in scene.store.audit() if each.kind == "cancel"] == []


def test_a_form_of_another_site_does_nothing(scene: Stepped) -> None:
    at = scene.begin()
    pages = scene.pages()
    path = f"/runs/{at.run_id}/cancel"
    form = pages.page(path).one("form", method="post")
    assert pages.send(form, csrf="x").status_code == 403
    sent = pages.visitor(**{"sec-fetch-site": "cross-site"}).post(path, data=form.filled())
    assert sent.status_code == 403 and scene.store.head(at.run_id)[0].status == "suspended"
    refused = pages.send(form, csrf="x", reason="keep this")
    assert "keep this" in refused.text and f'href="/runs/{at.run_id}"' in refused.text
    assert pages.visitor().post(f"/runs/{at.run_id}/fork", data=form.filled()).status_code == 404
    limited = scene.pages(limits=Limits(scene.store, operations=1))
    forms = [limited.page(path).one("form", method="post") for _ in range(2)]
    assert [limited.send(each, digest="x").status_code for each in forms] == [412, 429]


# Forking, going back, pausing


def test_a_fork_leaves_the_run_as_it_is(scene: Stepped) -> None:
    at = scene.begin()
    pages = scene.pages()
    page = pages.page(f"/runs/{at.run_id}/checkpoints/{at.id}")
    there = next(each for each in links(page) if each.endswith("/fork"))
    asks = pages.page(there)
    assert "asked again" in asks.text
    sent = pages.send(asks.one("form", method="post"), label=HOSTILE)
    (fork,) = [each for each in scene.store.branches() if each.parent_branch is not None]
    assert sent.headers["location"] == f"/runs/{fork.id}?said=fork#state" and fork.label == HOSTILE
    assert "This is the fork" in pages.page(f"/runs/{fork.id}?said=fork").text
    assert scene.store.head(at.run_id)[1] == at and scene.store.head(fork.id)[1].pending[0].id != at.pending[0].id
    (record,) = scene.store.audit()
    assert record.by == RITA.without_claims()
    assert (record.kind, record.branch_id, record.checkpoint_id) == ("fork", fork.id, at.id)
    row = pages.page("/history?kind=fork").one("ol", class_="rows")
    assert "Forked: the run of desk" in row.text and "by Rita" in row.text
    assert links(row) == [f"/runs/{fork.id}", f"/runs/{at.run_id}/checkpoints/{at.id}", f"/runs/{fork.id}"]


def test_the_conversation_goes_on_from_a_checkpoint() -> None:
    """D37: all is checked first, then written at once; the old branch stays."""
    scene = Stepped(breakpoints=[])
    at = scene.begin(thread_id="t1")
    first, asked, *_ = scene.store.history(at.id)
    pages, api = scene.pages(), scene.api()
    done = pages.page(f"/runs/{at.run_id}/checkpoints/{asked.id}/restore").one("form", method="post")
    sent = pages.send(done)
    restored = sent.headers["location"].partition("?")[0].removeprefix("/runs/")
    assert scene.store.current("t1").branch_id == restored != at.branch_id
    (record,) = scene.store.audit(thread_id="t1")
    assert (record.kind, record.branch_id, record.checkpoint_id) == ("restore", restored, asked.id)
    assert record.by == RITA.without_claims() and "Went back: the run" in pages.page("/history").text
    # The thread has a run that has not ended: nothing goes back until it has.
    back = operation(api, at.run_id, "restore", first.id)
    assert "has not ended" in back["why_not"]
    path = f"/runs/{at.run_id}/checkpoints/{first.id}/restore"
    assert problem(api.send(path, {"digest": back["digest"]})) == (409, "refused")
    assert "The run ends here" in operation(api, at.run_id, "fork", at.id)["why_not"]
    assert scene.store.head(at.run_id)[1] == at


def test_going_back_with_a_changed_agent_is_to_be_accepted(scene: Stepped) -> None:
    at = scene.begin()

    @tool
    def pay(euros: str) -> str:
        """Pay in words."""
        return euros

    other: Agent[Any, str] = Agent(name="desk", model=ScriptedModel.by_turn(["Done."]), tools=[pay], store=scene.store)
    pages = Pages(scene.store, agents=other, scopes=lambda _: ALL)
    page = pages.page(f"/runs/{at.run_id}/checkpoints/{at.id}/restore")
    assert "The agent has changed since" in page.text and "look" in page.one("section", aria_labelledby="changed").text
    form = page.one("form", method="post")
    assert pages.send(form).status_code == 409 and len(scene.store.branches()) == 1
    assert pages.send(form, accept="yes", key="again").status_code == 303 and len(scene.store.branches()) == 2
    # A step with it is refused as a resume is, and the breakpoint waits on.
    step = pages.page(f"/runs/{at.run_id}/step?request={at.pending[0].id}").one("form", method="post")
    assert pages.send(step).status_code == 409 and scene.store.head(at.run_id)[1] == at


def test_a_run_is_paused_and_let_go_on() -> None:
    """W14: a run that another process drives is paused at its next boundary, and nothing new starts."""

    async def story() -> None:
        store = MemoryStore()
        begun, go_on = asyncio.Event(), asyncio.Event()

        @tool
        async def slow() -> str:
            """Take a while."""
            begun.set()
            await go_on.wait()
            return "done"

        model = ScriptedModel.by_turn([call("slow", {}), "Done."])
        agent: Agent[Any, str] = Agent(name="desk", model=model, tools=[slow], store=store)
        running = asyncio.create_task(agent.ainvoke("Go"))
        await begun.wait()
        (branch,) = store.branches()
        api = Api(inbox_by_token(store, agents=agent), "rita")
        found = await asyncio.to_thread(operation, api, branch.id, "pause")
        assert found["why_not"] is None
        body = {"digest": found["digest"], "reason": "look first"}
        sent = await asyncio.to_thread(api.send, f"/runs/{branch.id}/pause", body)
        assert sent.status_code == 200 and sent.json()["status"] == "running"
        go_on.set()
        result = await running
        assert result.status == "suspended" and result.checkpoint.pending[0].why == "breakpoint"
        after = await asyncio.to_thread(operation, api, branch.id, "pause")
        assert after["why_not"] == "The run waits already."
        step = await asyncio.to_thread(operation, api, branch.id, "step")
        body = {"request": step["request"], "digest": step["digest"]}
        sent = await asyncio.to_thread(api.send, f"/runs/{branch.id}/step", body)
        assert sent.status_code == 202
        page = await asyncio.to_thread(api.read, f"/runs/{branch.id}")
        assert page["status"] in ("suspended", "completed", "running")

    asyncio.run(story())


def test_a_run_that_a_worker_holds_is_not_stepped(scene: Stepped) -> None:
    at = scene.begin()
    api = scene.api()
    step = operation(api, at.run_id, "step")
    store, branch = scene.store, scene.store.head(at.run_id)[0]
    store.append(Append(branch_id=branch.id, seq=branch.seq, take="worker", lease=60.0))
    found = operation(api, at.run_id, "step")
    assert found["why_not"] == "A worker is at work on the run at this moment."
    body = {"request": step["request"], "digest": step["digest"]}
    assert problem(api.send(f"/runs/{at.run_id}/step", body)) == (409, "refused")
    assert scene.done == [] and store.head(at.run_id)[1].pending == at.pending
