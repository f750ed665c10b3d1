"""Letters that are not what they look like, and marks that change a letter, are written out where a person reads."""
# ruff: noqa: RUF001

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from timeit import timeit
from typing import Any

import pytest
from drivers import PATIENCE
from hypothesis import given
from hypothesis import strategies as st
from tables import each
from test_cli_runs import place, run, said

from phronomy import Agent, Checkpoint, SQLiteStore, cli
from phronomy.cli.screen import Screen, json_text
from phronomy.foundation import lookalikes
from phronomy.foundation.lookalikes import LOOKALIKES
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
    "a letter from right to left before groups of digits": ("\u05d0 1234 5678", r"\u05d0 1234 5678"),
    "one between them": ("DE12 \u05d0 3456", r"DE12 \u05d0 3456"),
    "one in a path": ("a/\u0627/b", r"a/\u0627/b"),
    "two in a list": ('["\u05d0","\u05d1"]', r'["\u05d0","\u05d1"]'),
    "letters of Lisu": ("\ua4ee\ua4da\ua4df\ua4f0", r"\ua4ee\ua4da\ua4df\ua4f0"),
    "letters of Cherokee": ("\u13aa\u13df\u13b7\u13ac", r"\u13aa\u13df\u13b7\u13ac"),
    "letters of Coptic": ("\u2c9e\u2ca2\u2c88\u2c9a", r"\u2c9e\u2ca2\u2c88\u2c9a"),
    "Latin letters of phonetics": ("p\u0251yp\u0251l", r"p\u0251yp\u0251l"),
    "a dotless i in an address": ("g\u0131thub.com", r"g\u0131thub.com"),
    "a dotless i in a name": ("paypa\u0131", r"paypa\u0131"),
    "one more letter beside it": ("\u0410\u0421\u041c\u0415 (\u0416)", "\\u0410\\u0421\\u041c\\u0415 (\u0416)"),
    "a wide letter among others": ("p\uff41y", r"p\uff41y"),
    "a digit that looks like another": ("\u09ea", r"\u09ea"),
    "a slash that is none": ("paypal.com\u2044x", r"paypal.com\u2044x"),
    "a dot that is none": ("example\u2024com", r"example\u2024com"),
    "dots that are none before a path": ("\u2024\u2024/etc", r"\u2024\u2024/etc"),
    "a low quotation mark as a comma": ("1\u201a000", r"1\u201a000"),
    "a Greek question mark": ("rm x\u037e ls", r"rm x\u037e ls"),
    "a ratio": ("https\u2236//x", r"https\u2236//x"),
    "a minus sign": ("rm \u2212rf \u22125", r"rm \u2212rf \u22125"),
    "a hyphen that is none": ("a\u2010b 1\u20112", r"a\u2010b 1\u20112"),
    "a stroke of an ideograph": ("paypa\u4e28 a\u4e28b", r"paypa\u4e28 a\u4e28b"),
    "slashes that are kana": ("https:\u30ce\u30cee.com", r"https:\u30ce\u30cee.com"),
    "kana in an address beside Japanese": ("a\u30ceb \u6771\u4eac", "a\\u30ceb \u6771\u4eac"),
    "a click of Khoisan": ("Pay\u01c3", r"Pay\u01c3"),
    "a numeral of Old Italic": ("a\U00010322b", r"a\U00010322b"),
    "a digit of Hindi among others": ("12\u09683", r"12\u09683"),
    "a digit of Arabic in an amount": ("1\u0662,000.5\u0660", r"1\u0662,000.5\u0660"),
    "a wide digit among others": ("1\uff10", r"1\uff10"),
    "wide signs": ("a\uff0ecom x\uff1bls 1\uff0c000", r"a\uff0ecom x\uff1bls 1\uff0c000"),
    "a wide word beside others": ("pay \uff21\uff23 5", r"pay \uff21\uff23 5"),
    "raised letters": ("\u1d56aypa\u02e1", r"\u1d56aypa\u02e1"),
    "a modifier apostrophe": ("don\u02bct", r"don\u02bct"),
    "a colon of phonetics": ("a\u02d0b", r"a\u02d0b"),
    "signs of mathematics": ("x\u2217y a\u2223b", r"x\u2217y a\u2223b"),
    "numbers of Arabic that would change places": ("\u0661\u0662-\u0663", r"\u0661\u0662-\u0663"),
    "a note head that shows as nothing": ("a\U0001d159b", r"a\U0001d159b"),
    "marks without end": ("\u0e01" + "\u0e49" * 5, "\u0e01" + "\u0e49" * 4 + r"\u0e49"),
}
PLAIN = (
    *("order_id 1042", "Grüße, Zoë; naïve café", "Привет, как дела? Это рок, а не сор.", "Δόξα τῷ θεῷ", "αβγ"),
    *("JR東日本のTシャツ", "한국어 漢字 text", "नमस्ते दुनिया", "สวัสดีครับ", "שָׁלוֹם", "السَّلامُ عليكم", "Հայաստան"),
    *(
        "5 µm, 3 m², ½, 10 €, № 7, 1ª",
        "\uff21\uff22\uff23",
        "👍🏽 → …",
        "Việt Nam",
        "ref ٣٫١٤ x ٣",
        "使用Python（3.11）版本，OK，谢谢：A／B",
        "新闻丨Python 教程、Aノート、Bノ",
        "価格は１，０００円、A４判（NHK「ＮＨＫ」）",
        "हिन्दी में १२३ और 45। Python है।",
        "한국어 (테스트) ABC（가나）",
        "ראשון, שני; שלישי: מה־זה? ״שלום״",
        "أولا، ثانيا؛ ماذا؟",
        "Τι κάνεις\u037e Καλά, Python\u037e",
        "п'ять п\u02bcять об’єкт 5–6",
        "10–20, 3×4, it’s ‘so’, ‚so‘, „x“, 5′",
        "m² x⁺ H₂O, 1 − 3 ∪ 4",
        "Հայերեն։ Python։",
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


def test_many_odd_letters_take_little_time() -> None:
    assert timeit(lambda: escaped("\u0430\u0251\ua4ee " * 100_000), number=1) < PATIENCE / 30


def test_the_table_of_lookalikes_is_read_from_the_confusables() -> None:
    rows = ["0430 ;\t0061", "0031 ;\t006C", "1D429 ;\t0070", "05D0 ;\t2135"]
    given = "\n".join(["# \u00a9 2020 Unicode", "# Version: 13.0.0", *(f"{row} ;\tMA\t#" for row in rows)])
    made: dict[str, Any] = {}
    exec(run_path(str(Path(__file__).parent.parent / "docs" / "lookalikes.py"))["source"](given), made)
    assert made["LOOKALIKES"] == {"a": "\u0430"}
    assert LOOKALIKES["a"][:1] == "\u0251" and "13.0.0" in (lookalikes.__doc__ or "")


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
