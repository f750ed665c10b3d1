"""Letters that are not what they look like, and marks that change a letter, are written out where a person reads."""
# ruff: noqa: RUF001

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each
from test_cli_runs import place, run, said

from phronomy import Agent, Checkpoint, SQLiteStore, cli
from phronomy.cli.screen import Screen, json_text
from phronomy.foundation.suspicious_letters import escaped
from phronomy.testing import ScriptedModel, call

__all__ = ["place", "said"]  # fixtures

WRITTEN = {
    "a Cyrillic letter in a Latin word": ("p\u0430ypal.com", r"p\u0430ypal.com"),
    "a Latin letter in a Cyrillic word": ("Привеt", r"Приве\x74"),
    "as many of each": ("a\u0430", r"a\u0430"),
    "with digits between": ("p1\u04301y", r"p1\u04301y"),
    "a Greek letter": ("micr\u03bfsoft", r"micr\u03bfsoft"),
    "all of a word that looks Latin": ("pay to \u0441\u043e\u0441\u043e.com", r"pay to \u0441\u043e\u0441\u043e.com"),
    "one letter by itself": ("/home/\u0430/x", r"/home/\u0430/x"),
    "an accent that is a character of its own": ("e\u0301", r"e\u0301"),
    "many marks": ("Z\u0335\u0321\u0301a", r"Z\u0335\u0321\u0301a"),
    "a mark on nothing": ("\u0301", r"\u0301"),
    "a vowel of another script on a letter": ("a\u093f", r"a\u093f"),
    "letters of mathematics": ("\U0001d429ay", r"\U0001d429ay"),
    "the sign of Kelvin": ("1 \u212a", r"1 \u212a"),
    "a Roman numeral": ("\u2169", r"\u2169"),
    "an override of the direction": ("\u202egnp.exe", r"\u202egnp.exe"),
    "an isolate": ("\u2066x\u2069", r"\u2066x\u2069"),
    "a mark of direction": ("a\u200fb", r"a\u200fb"),
    "a space of no width": ("a\u200bb", r"a\u200bb"),
    "a joiner of no width": ("a\u200db", r"a\u200db"),
    "a soft hyphen": ("a\u00adb", r"a\xadb"),
    "a selector of a variant": ("a\ufe0f", r"a\ufe0f"),
    "a filler": ("a\u3164b", r"a\u3164b"),
    "a tag": ("a\U000e0041", r"a\U000e0041"),
    "a line": ("a\u2028b\nc", r"a\u2028b\x0ac"),
    "a half of a pair": ("\ud800", r"\ud800"),
}
PLAIN = (
    *("order_id 1042", "Grüße, Zoë; naïve café", "Привет, как дела? Это рок, а не сор.", "Δόξα τῷ θεῷ", "αβγ"),
    *("JR東日本のTシャツ", "한국어 漢字 text", "नमस्ते दुनिया", "สวัสดีครับ", "שָׁלוֹם", "السَّلامُ عليكم", "Հայաստան"),
    *(
        "5 µm, 3 m², ½, 10 €, № 7, 1ª",
        "\uff21\uff22\uff23",
        "👍🏽 → …",
        "Việt Nam",
        "İstanbul ılık",
        "x_\u043f\u0440\u0438\u0432\u0435\u0442",
    ),
)


@each(("text", "written"), WRITTEN.values(), ids=WRITTEN)
def test_what_is_not_what_it_looks_like_is_written_out(text: str, written: str) -> None:
    assert escaped(text) == written


@each("text", PLAIN)
def test_what_people_write_is_shown_as_it_is(text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    assert escaped(text) == text


@given(st.text(alphabet=st.characters()))
def test_all_of_it_is_there_and_can_be_printed(text: str) -> None:
    found = escaped(text)
    assert found.isprintable()
    assert len(found) >= len(text)
    assert all(char in text for char in found if not char.isascii())


@given(
    st.recursive(st.text() | st.integers() | st.none(), lambda some: st.lists(some) | st.dictionaries(st.text(), some))
)
def test_what_is_to_be_edited_is_the_same_value(value: object) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert text.replace("\n", "").isprintable()


def begin(note: str) -> Checkpoint:
    sys.path.insert(0, os.getcwd())
    import desk  # type: ignore[import-not-found]

    with SQLiteStore("runs.db") as store:
        model = ScriptedModel([call("refund", {"order_id": 1, "note": note})])
        return Agent(name="desk", model=model, tools=[desk.refund], store=store).invoke("go", thread_id="t1").checkpoint


def test_a_request_and_the_editor_show_it(place: Path, said: Callable[[], str]) -> None:
    note = "p\u0430ypal e\u0301 \u202e"
    assert run("show", begin(note).pending[0].id, "--reveal") == cli.DONE
    assert r'note      text      "p\u0430ypal e\u0301 \u202e"' in said()
    assert r'"p\u0430ypal e\u0301 \u202e"' in json_text({"note": note})


def test_a_new_line_is_no_letter_of_the_word_after_it(place: Path, said: Callable[[], str]) -> None:
    note = 'Привет,\nмир\t\\мир "мир" \x7f'
    assert run("show", begin(note).pending[0].id, "--reveal") == cli.DONE
    assert r'note      text      "Привет,\nмир\t\\мир \"мир\" \x7f"' in said()


def test_what_comes_in_pieces_is_marked_as_it_is_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    flow = Screen().flowing("model")
    for char in "Привет, а это p\u0430ypal.\nа":
        flow.write(char)
    flow.end()
    assert capsys.readouterr().out == "  model     Привет, а это p\\u0430ypal.\n            а\n"
