"""Approving and rejecting several requests in one command, for a worker to carry out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from test_cli_runs import STORE, begin, place, refunds, run, said, told, waiting
from test_cli_terminal import terminal

from phronomy import SQLiteStore, cli
from phronomy.stores.base import Store
from phronomy.stores.batches import Batches

__all__ = ["place", "said", "told"]  # fixtures
AT = r"by rita \(cli\) at \d\d:\d\d:\d\d UTC"


def asked() -> list[str]:
    """Three requests: one of a run, and two of another."""
    begin()
    begin("Refund order 2000 and 3000", "t2")
    return waiting()


def trail() -> list[tuple[str | None, str]]:
    with SQLiteStore("runs.db") as store:
        return [(line.pending_id, line.kind) for line in store.audit()]


def test_several_are_shown_recorded_and_reported_in_a_line_each(said: Callable[[], str]) -> None:
    one, two, three = asked()
    said()
    assert run("approve", three, one, "--yes", "--reveal", app=None) == cli.DONE
    shown = said()
    assert [order for order in ("1042", "2000", "3000") if order in shown] == ["1042", "3000"]
    assert re.search(
        rf"\n  {three} was approved {AT}\n  {one} was approved {AT}\n"
        r"A worker of the app carries out what was decided\. To be one:\n"
        rf"  work      phronomy work --app MODULE:AGENT --store {STORE}\n$",
        shown,
    )
    assert (waiting(), refunds(), trail()) == ([two], [], [(three, "approve"), (one, "approve")])
    assert run("work", "--once") == cli.DONE
    assert sorted(refunds()) == ["1042 49.9 s3cret", "3000 49.9 s3cret"]
    assert run("reject", two, "--yes", "--reason", "no", app=None) == cli.DONE
    assert run("work", "--once") == cli.DONE
    assert sorted(refunds()) == ["1042 49.9 s3cret", "3000 49.9 s3cret"]


def test_one_that_is_refused_stops_no_other_and_shows_in_the_exit_status(said: Callable[[], str]) -> None:
    one, two, three = asked()
    run("reject", two, "--yes", app=None)
    said()
    assert run("reject", one, two, "pend_0", three, "--yes", "--then", "end", app=None) == cli.FAILED
    shown = said()
    assert re.search(
        rf"\n  {one} was rejected {AT}\n  {three} was rejected {AT}\n"
        rf"  {two} was not decided: {two} was rejected {AT}; the run waits.*\n  pend_0 +was not decided: .*\nA worker",
        shown,
    )
    assert (waiting(), trail()) == ([], [(two, "reject"), (one, "reject"), (three, "reject")])


def test_all_or_none_decides_nothing_if_one_is_refused(said: Callable[[], str], told: Callable[[], str]) -> None:
    one, two, three = asked()
    run("reject", two, "--yes", app=None)
    before = trail()
    said()
    line = ("reject", one, two, three, "--yes", "--all-or-none")
    assert run(*line, app=None) == cli.FAILED
    assert told().startswith(f"phronomy: error: nothing was decided: {two} was rejected by rita")
    assert run("approve", one, "pend_0", "--yes", "--reveal", "--all-or-none", app=None) == cli.FAILED
    assert told().startswith("phronomy: error: nothing was decided: the store knows no ")
    assert (waiting(), trail()) == ([one, three], before)
    assert run("reject", one, three, "--yes", "--all-or-none", app=None) == cli.DONE
    assert (waiting(), len(trail())) == ([], 3)


def test_one_that_somebody_decides_while_it_is_shown_is_refused_with_the_others(
    said: Callable[[], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = asked()
    decide_all = Batches.decide_all

    def late(store: Store, *given: object, **options: object) -> object:
        item = store.request(two).approval
        store.decide(two, answers.Reject(), by="otto", digest=item.digest)
        return decide_all(store, *given, **options)  # type: ignore[arg-type]

    from phronomy.cli.commands import approve as answers

    monkeypatch.setattr(Batches, "decide_all", late)
    said()
    assert run("approve", one, two, "--yes", "--reveal", "--all-or-none", app=None) == cli.FAILED
    assert f"nothing was decided: {two}: this was decided before: rejected by otto" in capsys.readouterr().err
    assert trail() == [(two, "reject")]


def test_for_machines_each_is_an_object(said: Callable[[], str]) -> None:
    one, two, _ = asked()
    said()
    assert run("approve", one, "pend_0", two, "--yes", "--reveal", "--json", app=None) == cli.FAILED
    first, second, third = json.loads(said())
    assert [each["pending_id"] for each in (first, second, third)] == [one, two, "pend_0"]
    assert (first["error"], third["request"], third["error"]["type"]) == (None, None, "CheckpointNotFound")
    assert "pend_0" in third["error"]["message"]
    assert (first["request"]["status"], first["request"]["decision"]["kind"]) == ("decided", "approve")
    assert sorted(first["request"]) == [
        *("agent", "branch_id", "checkpoint_id", "decision", "run_id", "status", "thread_id")
    ]


def test_what_is_asked_for_in_a_wrong_way_decides_nothing(said: Callable[[], str], told: Callable[[], str]) -> None:
    one, two, _ = asked()
    with SQLiteStore("runs.db") as store:
        run_id = store.request(one).run_id
    said()
    for line, why in (
        (("approve", one, two, "--yes"), "masked"),
        (("reject", one, two, "--digest", "0" * 12, "--yes"), "--digest is of one request"),
        (("reject", one, two, one, "--yes"), "is named twice"),
        (("reject", one, two, "--json"), "--json asks nobody"),
        (("reject", two, run_id, "--yes"), "--yes shows nothing first"),
        (("reject", *(f"pend_{number}" for number in range(1001)), "--yes"), "1000 ids at most"),
    ):
        assert run(*line, app=None) == cli.MISUSED
        assert why in told()
    assert run("reject", one, two, "--yes") == cli.MISUSED
    assert "several ids are decided without an app" in told()
    assert run("reject", one, two, app=None) == cli.PENDING
    assert "Nothing was decided: all 2 still wait. Only a terminal is asked" in said()
    assert (len(waiting()), trail()) == (3, [])


def test_a_human_is_asked_once_for_all(place: Path) -> None:
    one, two, _ = asked()
    for answer, status in (("n", cli.PENDING), (None, cli.INTERRUPTED)):
        with terminal("reject", one, two, app=None) as desk:
            desk.sees(r"Reject all 2 of them\? \[y/N\] ")
            if answer is None:
                desk.presses("c")
            else:
                desk.types(answer)
            assert desk.status() == status
        assert "Nothing was decided" in desk.text.splitlines()[-1]
        assert trail() == []
    with terminal("reject", one, two, app=None) as desk:
        desk.sees(r"Reject all 2 of them\? \[y/N\] ")
        desk.types("y")
        assert desk.status() == cli.DONE
    assert trail() == [(one, "reject"), (two, "reject")]
