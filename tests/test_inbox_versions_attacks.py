"""The versions of a run in the inbox, for those who look for what they should not see, and send what no page has."""

from __future__ import annotations

import pytest
from inbox_api_scenes import API, api_of
from test_inbox_versions import Stepped, told_of

from phronomy import Breakpoint
from phronomy.guardrails import RedactPatterns

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
