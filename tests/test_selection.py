"""Which tests run by default: told with tests that are only names and parameters."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from drivers import ASYNC, DRIVERS, STREAMED, SYNC
from selection import chosen, rest, scaled, scaled_names, share
from tables import each

KINDS = ("memory", "sqlite", "postgres", "redis")
FILE = object()


class Case:
    """A test with one set of its parameters, as pytest collects it."""

    def __init__(self, name: str, given: dict[str, Any], **marks: Any) -> None:
        self.parent, self.name, self.originalname = FILE, name, name
        self.nodeid = f"{name}[{'-'.join(map(str, given.values()))}]"
        self.callspec = type("CallSpec", (), {"params": given})()
        self.marks = {each: getattr(pytest.mark, each)(value).mark for each, value in marks.items()}

    def get_closest_marker(self, name: str) -> Any:
        return self.marks.get(name)


def cases(name: str = "test", /, marks: dict[str, Any] | None = None, **axes: Any) -> list[Any]:
    return [Case(name, dict(zip(axes, row, strict=True)), **(marks or {})) for row in product(*axes.values())]


def run(found: list[Any]) -> list[tuple[Any, ...]]:
    """The parameters of those that run by default."""
    return [tuple(case.callspec.params.values()) for case in chosen(found)]


def test_a_test_without_parameters_runs() -> None:
    assert run([Case("one", {}), Case("other", {})]) == [(), ()]


def test_drivers_and_stores_meet_on_the_diagonal() -> None:
    assert run(cases(driver=DRIVERS, store=KINDS[:2])) == [(SYNC, "memory"), (ASYNC, "sqlite")]
    assert run(cases(driver=DRIVERS, store=KINDS)) == [
        *((SYNC, "memory"), (SYNC, "postgres")),
        *((ASYNC, "sqlite"), (ASYNC, "redis")),
    ]
    assert run(cases(driver=("sync", "async"))) == [("sync",), ("async",)]


def test_streams_are_taken_as_far_as_there_are_stores_or_values_for_them() -> None:
    every = (*DRIVERS, *STREAMED)
    assert run(cases(driver=every, store=KINDS[:2])) == [(SYNC, "memory"), (ASYNC, "sqlite")]
    assert [driver for driver, _ in run(cases(driver=every, store=KINDS))] == [*every]
    assert [driver for driver, _ in run(cases(driver=every, value=range(8)))] == [each for each in every for _ in "12"]


def test_every_combination_of_values_runs_once_in_the_next_world() -> None:
    found = run(cases(driver=DRIVERS, store=KINDS[:2], value=(1, 2, 3), flag=(True, False)))
    assert sorted(row[2:] for row in found) == sorted(product((1, 2, 3), (True, False)))
    assert {row[:2] for row in found} == {(SYNC, "memory"), (ASYNC, "sqlite")}


def test_a_string_that_may_be_a_store_is_a_value_where_others_are_not() -> None:
    assert run(cases(kind=("replica", "memory"), driver=DRIVERS)) == [("replica", SYNC), ("memory", ASYNC)]


def test_a_test_that_is_not_given_every_combination_runs_with_each_value_and_on_each_store() -> None:
    given = [{"store": kind, "value": value} for kind, value in (("memory", 1), ("memory", 2), ("redis", 2))]
    assert set(run([Case("test", each) for each in given])) == {("memory", 1), ("redis", 2)}


def test_marks_say_otherwise() -> None:
    worlds: Any = {"driver": DRIVERS, "store": KINDS}
    assert len(run(cases(marks={"product": True}, **worlds))) == 8
    assert run(cases(marks={"sweep": True}, **worlds)) == []
    assert len(run(cases(marks={"few": 3}, value=range(10)))) == 3
    two = [run(cases(name, marks={"worlds": 2}, **worlds)) for name in "abcdefgh"]
    for found in two:
        assert {driver for driver, _ in found} == {*DRIVERS}
    assert {kind for found in two for _, kind in found} == {*KINDS}
    assert len(run([*cases(value=(1, 2)), Case("test", {"value": 3}, sweep=True)])) == 2


def test_how_many_depends_on_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PHRONOMY_TESTS_SWEEP", raising=False)
    assert scaled(1, sweep=2) == 1
    monkeypatch.setenv("PHRONOMY_TESTS_SWEEP", "1")
    assert scaled(1, sweep=2) == 2


# Tables


def test_a_table_tries_every_row_and_names_those_that_fail() -> None:
    tried: list[int] = []

    @each(("number", "word"), [(1, "one"), pytest.param(2, "two", id="the second"), (3, "three")])
    def table(number: int, word: str, shared: str) -> None:
        tried.append(number)
        assert number == 1, f"{shared} {word}"

    with pytest.raises(ExceptionGroup, match="2 of 3 rows failed") as failed:
        table(shared="it is")
    assert tried == [1, 2, 3]
    assert [error.__notes__ for error in failed.value.exceptions] == [
        ["in the row the second"],
        ["in the row 2: 3, 'three'"],
    ]


@each("number", [1, 2])
def test_a_row_of_one_value_needs_no_brackets(number: int) -> None:
    assert number in (1, 2)


def test_the_rest_is_what_a_default_run_leaves_out_or_does_less_of(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(SOME)
    found = {name: cases(name, driver=DRIVERS, store=KINDS[:2]) for name in ("plain", "counts", "searches", "told")}
    for each_case in found.values():
        for case in each_case:
            case.path, case.nodeid = file, f"test_some.py::{case.nodeid}"
    left = {name: rest(each_case) for name, each_case in found.items()}
    assert [tuple(case.callspec.params.values()) for case in left.pop("plain")] == [(SYNC, "sqlite"), (ASYNC, "memory")]
    assert left == {name: each_case for name, each_case in found.items() if name != "plain"}


def test_each_test_is_in_one_share_of_four() -> None:
    found = cases("plain", driver=DRIVERS, store=KINDS, value=range(20))
    shares = [share(found, number, 4) for number in (1, 2, 3, 4)]
    assert sorted(case.nodeid for each in shares for case in each) == sorted(case.nodeid for case in found)
    assert all(len(found) / 8 < len(each) < len(found) / 2 for each in shares)
    assert share(found[5:], 2, 4) == [case for case in shares[1] if case in found[5:]]
    assert share(found, 1, 1) == found


SOME = """
from hypothesis import given
from selection import scaled
import pytest
TIMES = scaled(3, sweep=9)

@pytest.fixture
def often():
    return TIMES

def plain(often_not): pass
def counts(often): pass
@given()
def searches(): pass
@pytest.mark.usefixtures("often")
def told(): pass
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def test_a(): pass", set()),
        ("from test_crash import each_once\ndef test_a(): each_once()", set()),
        ("from test_crash import sweeps\ndef test_a(): sweeps()", {"test_a"}),
        ("import hypothesis\n@hypothesis.given()\ndef test_a(): pass\ndef test_b(): pass", {"test_a"}),
        ("from hypothesis import given as g\n@g()\ndef test_a(): pass", {"test_a"}),
        (
            "from selection import scaled as s\npytestmark = few(s(1, sweep=2))\ndef test_a(): pass",
            {"test_a", "pytestmark"},
        ),
        ("def test_a(): run('test_request_machine.py')", {"test_a"}),
        ("import test_request_machine\ndef test_a(): test_request_machine.go()", {"test_a"}),
        ("import stress_outside\ndef test_a(): stress_outside.main()", set()),
        ("from test_request_machine import Told\nclass TestA(Told): pass\nTestB = Told.TestCase", {"TestA", "TestB"}),
    ],
)
def test_a_test_does_more_in_the_sweep_if_something_that_it_uses_does(
    text: str, names: set[str], tmp_path: Path
) -> None:
    file = tmp_path / "test_one.py"
    file.write_text(text)
    assert scaled_names([file])[file] - {"*"} == names


def test_the_files_that_are_measured_exist() -> None:
    here = Path(__file__).parent
    assert {name for name in (here / "measured.txt").read_text().split() if not (here / f"{name}.py").exists()} == set()


def test_what_kills_and_searches_does_more_in_the_sweep() -> None:
    crash, machine, gate = (Path(__file__).with_name(f"test_{name}.py") for name in ("crash", "store_machine", "gate"))
    found = scaled_names([crash, machine, gate])
    assert "test_a_worker_killed_anywhere_loses_nothing_and_does_nothing_twice" in found[crash]
    assert "TestStores" in found[machine]
    assert not found[gate]
