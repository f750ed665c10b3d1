"""The versions of a run in the inbox, for those who look for what they should not see, and send what no page has."""

from __future__ import annotations

import logging

import pytest
from inbox_api_scenes import API, api_of
from page_reader import read
from page_scenes import Pages
from test_inbox_versions import Stepped, counting, links, operation, told_of

from phronomy import Approve, Breakpoint, MemoryStore, Principal
from phronomy.guardrails import RedactPatterns
from phronomy.inbox.pages.records.versions import LONGEST

CARD = "1234-5678"


def seen(scene: Stepped, path: str) -> str:
    """What a page says, and what the API says at the same address, if it has it."""
    page = scene.pages().visitor().get(path)
    assert page.status_code == 200, page.text
    told = scene.api().get(API + path.replace("/compare", "/diff"))
    return page.text + (told.text if told.status_code == 200 else "")


def test_no_page_shows_an_input_that_guardrails_have_yet_to_look_at() -> None:
    """The first checkpoint of a run has its input as it was sent: the guardrail masks a part of it only after that."""
    scene = Stepped(breakpoints=[], input_guardrails=[RedactPatterns([CARD])])
    end = scene.agent.invoke(f"My card is {CARD}").checkpoint
    history = scene.store.history(end.id)
    assert CARD in history[0].messages[0].text
    for each in history:
        assert CARD not in seen(scene, f"/runs/{end.run_id}/checkpoints/{each.id}")
    compared = seen(scene, f"/runs/{end.run_id}/compare?before={history[0].id}&after={end.id}")
    assert CARD not in compared and "[redacted]" in compared and "no guardrail has let it through" in compared


@pytest.mark.parametrize("end", ["", "/messages", "/checkpoints/{at}", "/compare?before={first}&after={at}"])
def test_no_page_shows_an_answer_that_guardrails_have_yet_to_look_at(end: str) -> None:
    stops = [Breakpoint("pre_output_guardrails")]
    scene = Stepped(breakpoints=stops, output_guardrails=[RedactPatterns(["Done"])])
    at = scene.begin()
    assert at.messages[-1].text == "Done." and at.unguarded == "output"
    end = end.format(at=at.id, first=scene.store.history(at.id)[0].id)
    if end != "/messages":
        assert "Done." not in seen(scene, f"/runs/{at.run_id}{end}")
    else:
        assert "Done." not in scene.api().get(f"{API}/runs/{at.run_id}{end}").text


def test_what_an_application_notes_is_not_shown_nor_how_it_names_its_notes() -> None:
    scene = Stepped(breakpoints=[])
    at = scene.begin(metadata={"case of ada@example.org": "hush-2"})
    assert "hush-2" in at.model_dump_json()
    text = seen(scene, f"/runs/{at.run_id}/checkpoints/{at.id}")
    (found,) = told_of(scene, at, at.evolve(metadata='{"case of ada@example.org":"hush-3"}'))
    assert (found.kind, found.name, found.before, found.after, found.hidden) == (
        "metadata",
        "metadata",
        None,
        None,
        True,
    )
    assert "hush-2" not in text and "ada@example.org" not in text


def test_there_is_no_part_before_the_first_checkpoint() -> None:
    scene = Stepped()
    at = scene.begin()
    assert scene.pages().visitor().get(f"/runs/{at.run_id}/versions?before=0").status_code == 422
    found = api_of(scene.store).read(f"/runs/{at.run_id}/versions", before=0)
    assert (found["items"], found["total"], found["before"]) == ([], 2, None)


def test_a_fork_that_nobody_has_driven_says_so_and_can_be_let_go_on() -> None:
    """No worker takes it by itself, so the page promises none; by a pause and a step it goes on in the inbox alone."""
    scene = Stepped(breakpoints=[])
    end = scene.begin()
    first = scene.store.history(end.id)[0]
    pages = scene.pages()
    fork = scene.store.fork(first.id).branch_id
    assert scene.agent.recover_all() == []
    assert "This is the fork" not in pages.page(f"/runs/{end.run_id}?said=fork").text
    text = pages.page(f"/runs/{fork}?said=fork").text
    assert "This is the fork" in text
    assert "no worker takes it by itself. Pause it first" in text and "One takes over" not in text
    assert "nobody has let it go on yet" in pages.page("/runs").text
    assert "does not go on by itself" in pages.page(f"/runs/{end.run_id}/checkpoints/{first.id}/fork").text
    assert "Whoever runs the agents" in scene.pages({"read"}).page(f"/runs/{fork}").text
    assert pages.send(pages.page(f"/runs/{fork}/pause").one("form", method="post")).status_code == 303
    for turn in (0, 1):  # a stop before the run begins, and one after the model has replied
        step = next(each for each in links(pages.page(f"/runs/{fork}")) if "/step?" in each)
        assert pages.send(pages.page(step).one("form", method="post")).status_code == 303
        assert scene.store.head(fork)[1].turn == turn


def test_the_access_log_says_who_has_forked_a_run_and_which(caplog: pytest.LogCaptureFixture) -> None:
    """The trail has no line of a fork, since nothing was decided."""
    scene = Stepped()
    at = scene.begin()
    api, pages = scene.api(), scene.pages()
    caplog.set_level(logging.INFO, logger="phronomy.inbox")
    form = pages.page(f"/runs/{at.run_id}/checkpoints/{at.id}/fork").one("form", method="post")
    fork = pages.send(form).headers["location"].partition("?")[0].removeprefix("/runs/")
    assert f"rita by header about {at.run_id}, {fork}" in caplog.messages[-1]
    step = operation(api, at.run_id, "step")
    api.send(f"/runs/{at.run_id}/step", {"request": step["request"], "digest": step["digest"]})
    assert f"rita by token about {at.run_id}, {at.pending[0].id}" in caplog.messages[-1]


def test_a_difference_that_is_too_long_for_a_page_is_got_by_the_api() -> None:
    """The page of a checkpoint leaves a long state to the API; a difference of two would have been twice as long."""
    store, secret = MemoryStore(), "<b>x</b>" * (LONGEST // 8)
    graph = counting(store, secret)
    end = graph.invoke({"n": 1, "note": ""}).checkpoint
    first = store.history(end.id)[0]
    path = f"/runs/{end.run_id}/compare?before={first.id}&after={end.id}"
    answer = Pages(store, agents=graph).visitor().get(path)
    assert answer.status_code == 200 and len(answer.content) < LONGEST
    page = read(answer.text).one("main")
    assert "status: running → completed" in page.text and "too many for a page" in page.text
    (there,) = [each for each in links(page) if each.startswith("/api")]
    told = api_of(store, agents=graph).get(there)
    assert told.status_code == 200 and secret in told.text
    shown = Pages(store, agents=graph).page(f"/runs/{end.run_id}/checkpoints/{end.id}")
    assert "How it stoodCompleted" in shown.text


def test_nobody_looks_like_somebody_else_and_an_edit_is_told() -> None:
    """A name is chosen by its owner, so the id stands beside it; what the model asked for is not what was approved."""
    scene = Stepped(gate=True, breakpoints=[])
    at = scene.begin()
    mallory = Principal(id="mallory", name="Ada")
    end = scene.agent.resume(at, decisions={at.pending[0].id: Approve(args={"euros": 4})}, by=mallory).checkpoint
    pages = scene.pages()
    for path in ("/versions", f"/compare?before={at.id}&after={end.id}"):
        text = pages.page(f"/runs/{at.run_id}{path}").text
        assert "by Ada (mallory)" in text and text.count("by Ada") == text.count("by Ada (mallory)")
    assert "approve with changes by Ada" in text
    assert "Approved with changes" in pages.page(f"/runs/{at.run_id}/checkpoints/{end.id}").text
