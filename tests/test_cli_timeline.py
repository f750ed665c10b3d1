"""`phronomy timeline`: what happened in a run, for people and for machines, without anything that was said."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from redis_server import redis_url
from servers import postgres_schema, postgres_url
from test_cli_runs import STORE, begin, place, run, said, told

from phronomy import Checkpoint, SQLiteStore, Store, cli, open_store
from phronomy.cli.commands import timeline as _timeline
from phronomy.cli.commands.timeline import details, show
from phronomy.observability.timeline import Timeline, TimelineEntry, timeline

__all__ = ["place", "said", "told"]  # fixtures


def test_what_happened_is_a_line_each_oldest_first(said: Callable[[], str]) -> None:
    waiting = begin()
    said()
    for id in (waiting.run_id, waiting.id, waiting.pending[0].id):
        assert run("timeline", id, app=None) == cli.DONE
        heads, *lines = said().splitlines()
        assert heads.split() == ["TIME", "UTC", "WHAT", "DETAILS"]
        assert [" ".join(line.split()[1:]) for line in lines] == [
            "run_started -",
            "model_replied refund",
            "approval_requested refund, why approval",
            "suspended -",
        ]
        assert all(re.match(r"\d\d:\d\d:\d\d  ", line) for line in lines)


def test_ids_dates_and_what_says_little_are_shown_if_they_are_asked_for(said: Callable[[], str]) -> None:
    waiting = begin()
    said()
    assert run("timeline", waiting.run_id, "--ids", app=None) == cli.DONE
    heads, *lines = said().splitlines()
    assert heads.split() == ["ID", "TIME", "UTC", "WHAT", "AGENT", "DETAILS", "CHECKPOINT"]
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3", "4", "5"]
    assert {line.split()[4] for line in lines} == {"desk"}
    assert "checkpoint" in lines[1] and "running" in lines[1]
    assert f"refund, why approval, {waiting.pending[0].id}" in lines[3]
    assert lines[5].endswith(waiting.id)


def test_times_of_several_days_have_their_day(said: Callable[[], str]) -> None:
    """And entries of several agents their agent."""
    from phronomy.cli.screen import Screen

    waiting = begin()
    with SQLiteStore("runs.db") as store:
        first, *rest = timeline(store, waiting.run_id)
    said()
    later = [each.evolve(at=each.at + timedelta(days=2), agent="other") for each in rest]
    show(Screen(), [first, *later], machine=False)
    heads, *lines = said().splitlines()
    assert heads.split() == ["TIME", "UTC", "WHAT", "AGENT", "DETAILS"]
    assert len({line[:10] for line in lines}) == 2 and lines[0].startswith(f"{first.at:%Y-%m-%d %H:%M:%S}  ")


def test_a_checkpoint_before_the_last_means_what_led_to_it(said: Callable[[], str]) -> None:
    waiting = begin()
    said()
    assert run("timeline", str(waiting.parent_id), "--ids", app=None) == cli.DONE
    assert [line.split()[3] for line in said().splitlines()[1:]] == ["run_started", "checkpoint"]


def test_types_and_the_newest_are_picked(said: Callable[[], str]) -> None:
    waiting = begin()
    said()
    wanted = (
        (("--type", "checkpoint"), ["running", "suspended"]),
        (("--type", "checkpoint", "--type", "suspended"), ["running", "suspended", "-"]),
        (("--type", "checkpoint", "--limit", "1"), ["suspended"]),
        (("--limit", "2"), ["approval", "-"]),
    )
    for options, ends in wanted:
        assert run("timeline", waiting.run_id, *options, app=None) == cli.DONE
        assert [line.split()[-1] for line in said().splitlines()[1:]] == ends
    assert run("timeline", waiting.run_id, "--type", "ended", app=None) == cli.DONE
    assert said() == "Nothing of that type has happened.\n"


def test_for_machines_it_is_a_line_of_json_each_as_it_is_read(said: Callable[[], str]) -> None:
    waiting = begin()
    said()
    assert run("timeline", waiting.run_id, "--json", app=None) == cli.DONE
    lines = said().splitlines()
    with SQLiteStore("runs.db") as store:
        found = timeline(store, waiting.run_id)
    assert tuple(TimelineEntry.model_validate_json(line) for line in lines) == found.entries
    assert json.loads(lines[3])["facts"]["tool"] == "refund"
    assert run("timeline", waiting.run_id, "--json", "--type", "ended", app=None) == cli.DONE
    assert said() == ""


def test_nothing_is_left_out_however_long_the_run_is(said: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[int] = []

    def read(store: Store, run: Checkpoint, *, max_events: int) -> Timeline:
        bounds.append(max_events)
        return timeline(store, run, max_events=max_events)

    monkeypatch.setattr(_timeline, "read", read)
    waiting = begin()
    said()
    assert run("timeline", waiting.run_id, "--json", app=None) == cli.DONE
    assert len(said().splitlines()) == 6
    assert bounds == [sys.maxsize]


def test_nothing_that_was_said_is_printed(said: Callable[[], str]) -> None:
    waiting = begin("Refund order 1042, my code is 4711-secret")
    assert "4711-secret" in waiting.model_dump_json() and "s3cret" in waiting.model_dump_json()
    said()
    for options in ((), ("--json",)):
        assert run("timeline", waiting.run_id, *options, app=None) == cli.DONE
        assert "secret" not in (printed := said()) and "s3cret" not in printed
        assert "refund" in printed


def test_a_fork_and_its_label_are_told(said: Callable[[], str]) -> None:
    waiting = begin()
    with SQLiteStore("runs.db") as store:
        fork = store.fork(waiting.id, label="what if")
    said()
    assert run("timeline", fork.branch_id, "--ids", app=None) == cli.DONE
    lines = said().splitlines()[1:]
    assert f"branched            desk   from {waiting.id}, label what if" in lines[6]
    assert "suspended, label what if" in lines[8]


@pytest.mark.parametrize(
    ("line", "status", "error"),
    [
        (("timeline", "run_0"), cli.FAILED, "no pending approval, checkpoint or run run_0"),
        (("timeline", "run_0", "--type", "Ended"), cli.MISUSED, "--type is one of run_started, branched, "),
        (("timeline", "run_0", "--limit", "0"), cli.MISUSED, "'--limit'"),
        (("timeline",), cli.MISUSED, "ID"),
    ],
    ids=str,
)
def test_what_is_asked_for_wrongly_is_one_line(
    line: tuple[str, ...], status: int, error: str, told: Callable[[], str], place: Path
) -> None:
    SQLiteStore(place / "runs.db").close()
    assert run(*line, app=None) == status
    assert error in told()


def test_every_store_is_read_alike(said: Callable[[], str]) -> None:
    waiting = begin()
    said()
    assert run("timeline", waiting.run_id, "--json", app=None) == cli.DONE
    types = [json.loads(line)["type"] for line in said().splitlines()]
    with postgres_schema() as schema:
        for url in (f"{postgres_url()}&schema={schema}".replace(" ", "%20"), redis_url()):
            with SQLiteStore("runs.db") as store, open_store(url) as other:
                other.save(store.load(waiting.id))
            assert run("timeline", waiting.id, "--json", app=None, store=url) == cli.DONE
            found = [json.loads(line) for line in said().splitlines()]
            assert [entry["type"] for entry in found] == ["branched", *types[3:]]
            assert found[0]["facts"] == {"from": waiting.parent_id}
    assert STORE == "sqlite:///runs.db"


def test_the_details_are_what_people_look_for() -> None:
    facts = {
        "stage": "input",
        "said": {"length": "passed", "cards": "refused"},
        "code": "no_cards",
        "call_id": "call_1",
    }
    assert details(facts) == "stage input, said length passed, cards refused, code no_cards"
    facts = {
        "pending_id": "pend_1",
        "point": "post_run",
        "label": "look",
        "tool": "post_run",
        "skipped": True,
        "by": "ada",
    }
    assert details(facts) == "post_run, post_run, label look, skipped, by ada, pend_1"
    assert details({"tools": ["a", "b"], "requests": 2}) == "a, b"
