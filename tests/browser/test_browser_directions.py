"""Letters from right to left in the browser: they are read in the order in which they are stored, and move nothing beside them.

A page is measured, not its source: for each character the box that the browser draws it in.
"""

from __future__ import annotations

from typing import Any

import pytest
from visitors import Desk, Visitor

from phronomy import Agent, Approval, PendingApproval, Principal, Reject, tool
from phronomy.testing import ScriptedModel, call

ALEF, BET, BEH, OVERRIDE, ISOLATE = "\u05d0", "\u05d1", "\u0628", "\u202e", "\u2067"

VALUES = {
    "groups of digits": f"{ALEF} 1234 5678 9012",
    "between digits": f"DE12 {ALEF} 3456 7890",
    "a path": f"a/{ALEF}/b/{BET}/c",
    "signs": f"{ALEF} <- 5 > 4 ({BET}) [1]",
    "Arabic digits": "\u0661\u0662 \u0663\u0664 5",
    "Arabic digits alone": "\u0661\u0662 \u0663\u0664",
    "a letter and digits": f"{BEH} \u0661\u0662 34",
    "at the end": f"pay 5 {ALEF}",
    "an override": f"pay {OVERRIDE}001 to 5",
    "an isolate that is left open": f"pay {ISOLATE}1 2 {ALEF}",
    "a new line": f"{ALEF} 1 2\n3 4 {BET}",
}

WORDS = f"{ALEF}{BET} {ALEF}, {BET}{BET}."
"""Nothing but letters from right to left, and what stands between words: read as it is written."""

PLAIN = "pay 1234 to 5"

# By the lines of the page, from left to right: what is read there. Boxes of letters that are written out are one sign.
READ = """(each) => {
    const boxes = [], range = document.createRange();
    const walk = (node) => {
        if (node.nodeType === Node.ELEMENT_NODE) {
            if (node.matches(".sr")) return;
            if (node.matches(".letter")) return void boxes.push([node.getBoundingClientRect(), "#"]);
            return void [...node.childNodes].forEach(walk);
        }
        for (let at = 0; at < node.data.length; at += 1) {
            if (/\\s/.test(node.data[at])) continue;
            range.setStart(node, at);
            range.setEnd(node, at + 1);
            boxes.push([range.getBoundingClientRect(), node.data[at]]);
        }
    };
    walk(each);
    const middle = (box) => (box.top + box.bottom) / 2;
    const lines = [];
    for (const found of boxes.sort(([a], [b]) => middle(a) - middle(b))) {
        const line = lines[lines.length - 1];
        if (line && middle(found[0]) < line[0][0].bottom) line.push(found);
        else lines.push([found]);
    }
    return lines.flatMap((line) => line.sort(([a], [b]) => a.left - b.left)).map(([, char]) => char).join("");
}"""

# Of pieces that follow one another in a line, those that stand left of the one before them.
MOVED = """() => {
    const moved = [], range = document.createRange();
    const boxes = (node) => {
        if (node.nodeType === Node.ELEMENT_NODE) {
            return node.matches(".sr") ? [] : [...node.childNodes].flatMap(boxes);
        }
        range.selectNodeContents(node);
        return [...range.getClientRects()].filter((box) => box.width > 0);
    };
    for (const parent of document.querySelectorAll("main, main *")) {
        if (parent.closest("bdi, svg, select, textarea, button")) continue;
        let last = null;
        for (const node of parent.childNodes) {
            const found = boxes(node);
            if (found.length === 0) continue;
            const first = found[0], middle = (first.top + first.bottom) / 2;
            if (last !== null && middle > last.top && middle < last.bottom && first.left < last.left) {
                moved.push(`${parent.tagName}.${parent.className}: ${node.textContent.trim().slice(0, 60)}`);
            }
            last = found[found.length - 1];
        }
    }
    return moved;
}"""


def asked(desk: Desk, text: str, **more: str) -> PendingApproval:
    """A request with the text wherever one from outside can stand: argument, title, context, and the name of who asks."""

    @tool(requires_approval=Approval(title=lambda args: args["to"], context=text), risk="high")
    def pay(to: str, more: dict[str, str]) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([call("pay", {"to": text, "more": more or {text: "END"}})])
    agent = Agent(name="desk", model=model, tools=[pay], store=desk.store)
    who = Principal(id="ann", name=text.replace("\n", " "))
    desk.pass_time(60)
    begun: Any = desk.apart(agent.invoke, text, requester=who, label=text.replace("\n", " "))
    return begun.checkpoint.pending[0]


def as_read(text: str) -> str:
    """The text to read, from left to right: the text as it is stored, with a sign for each box."""
    return "".join("#" if char in (OVERRIDE, ISOLATE) else char for char in text if not char.isspace())


def test_values_are_read_as_they_are_stored(desk: Desk, rita: Visitor) -> None:
    """The argument itself, and the members of another one."""
    item = asked(desk, VALUES["groups of digits"], **VALUES)
    page = rita.opens(f"/requests/{item.id}")
    page.locator("dd bdi").first.wait_for()
    found = [each.evaluate(READ) for each in page.locator("dd bdi.lines").all()]
    assert found == [as_read(text) for text in (VALUES["groups of digits"], *VALUES.values())]


@pytest.mark.parametrize("name", ["between digits", "Arabic digits", "an override"])
def test_titles_and_contexts_are_read_as_they_are_stored(desk: Desk, rita: Visitor, name: str) -> None:
    text = VALUES[name]
    page = rita.opens(f"/requests/{asked(desk, text).id}")
    assert as_read(text) in page.locator("h1").first.evaluate(READ)
    assert page.locator(".lead bdi").first.evaluate(READ) == as_read(text)


@pytest.mark.parametrize("name", ["groups of digits", "an isolate that is left open", "words", "plain"])
def test_nothing_beside_a_value_moves(desk: Desk, rita: Visitor, name: str) -> None:
    """On the pages of the request, of its run, of the list and of the history, and in the last look at a reason."""
    text = {**VALUES, "words": WORDS, "plain": PLAIN}[name]
    item, other = asked(desk, text), asked(desk, text)
    desk.decide(other, "rita", Reject(reason=text))
    for path in (f"/requests/{item.id}", f"/requests/{other.id}", "/", "/?view=all", "/history", "/runs", "/audit"):
        page = rita.opens(path)
        page.wait_for_load_state()
        assert page.evaluate(MOVED) == [], path
    rita.opens(f"/requests/{item.id}")
    rita.chooses("reject")
    rita.types("Reason", text)
    rita.sends("reject")
    page.locator("form[data-confirm] button").first.wait_for()
    assert page.evaluate(MOVED) == []


def test_words_from_right_to_left_are_read_from_the_right(desk: Desk, rita: Visitor) -> None:
    item = asked(desk, WORDS)
    page = rita.opens(f"/requests/{item.id}")
    value = page.locator("dd bdi.lines").first
    assert value.evaluate(READ) == as_read(WORDS)[::-1]
