"""What pages and API have in common: lists for one person, one request, checks of an edit, and decisions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inbox_scenes import OTTO, RITA, asked, desk, inbox_of, run
from places import Place

from phronomy import Agent, Approval, Approve, Principal, UnknownPending, tool
from phronomy.foundation.json_text import canonical, parse
from phronomy.inbox import Identity, Problem
from phronomy.inbox.service import (
    Change,
    WaitingFilter,
    changes_between,
    check_edit,
    count_waiting,
    decide,
    list_waiting,
    show,
)
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call


def of(principal: Principal) -> Identity:
    return Identity(principal=principal, via="test")


def listed(store: Store, wanted: WaitingFilter, by: Principal = RITA, limit: int = 3) -> list[list[int]]:
    """The orders of the requests, page by page."""
    pages: list[list[int]] = []
    after = None
    while True:
        page = run(list_waiting(store, of(by), wanted, limit=limit, after=after))
        pages.append([int(row.waiting.approval.args["order"]) for row in page.rows])  # type: ignore[arg-type]
        if (after := page.next) is None:
            return pages


def test_pages_have_each_request_once_in_the_order_of_the_store(place: Place) -> None:
    store = place.open()
    for order in range(8):
        asked(store, order)
    assert listed(store, WaitingFilter()) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert listed(store, WaitingFilter(newest=True)) == [[7, 6, 5], [4, 3, 2], [1, 0]]


def test_a_list_for_one_person_has_what_they_may_decide_and_no_gaps(place: Place) -> None:
    store = place.open()
    for order in range(12):
        asked(store, order, Approval(by="lead" if order % 3 == 0 else "clerk"))
    assert listed(store, WaitingFilter(mine=True)) == [[0, 3, 6], [9]]
    assert listed(store, WaitingFilter(mine=True), OTTO, limit=5) == [[1, 2, 4, 5, 7], [8, 10, 11]]
    assert run(count_waiting(store, of(RITA), WaitingFilter(mine=True))).count == 4
    assert run(count_waiting(store, of(RITA), WaitingFilter())).count == 12


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (WaitingFilter(tool="refund"), 3),
        (WaitingFilter(tool="pay"), 0),
        (WaitingFilter(agent="desk", risk="high"), 3),
        (WaitingFilter(requester="ann"), 2),
        (WaitingFilter(requester="nobody"), 0),
        (WaitingFilter(text="REFUND 7"), 1),
        (WaitingFilter(text="refund 8"), 0),
        (WaitingFilter(expires_within=60.0), 1),
        (WaitingFilter(expires_within=1.0), 0),
        (WaitingFilter(older_than=3600.0), 0),
    ],
)
def test_filters_say_which_requests_are_wanted(place: Place, wanted: WaitingFilter, found: int) -> None:
    store = place.open()
    asked(store, 5)
    asked(store, 6, requester=None)
    asked(store, 7, Approval(expires=30.0))
    assert sum(map(len, listed(store, wanted))) == found
    assert run(count_waiting(store, of(RITA), wanted)).count == found


def test_a_decision_is_in_the_name_of_whoever_is_signed_in(place: Place) -> None:
    store = place.open()
    item = asked(store, gate=Approval(by="lead", needed=1))
    shown = run(show(store, of(RITA), item.id))
    assert (shown.request.status, shown.standing.answers, shown.who) == (
        "pending",
        ("approve", "edit", "reject", "respond"),
        ("1 of lead",),
    )
    done = run(decide(store, of(RITA), item.id, Approve(), digest=item.digest, key="k1", channel="inbox"))
    decision = done.request.decision
    assert decision is not None and decision.by is not None
    assert (done.request.status, decision.by.id, decision.channel, done.standing.answers) == (
        "decided",
        "rita",
        "inbox",
        (),
    )
    again = run(decide(store, of(RITA), item.id, Approve(), digest=item.digest, key="k1", channel="inbox"))
    assert again.request.decision == decision


def test_a_decision_about_something_else_than_what_waits_is_refused(place: Place) -> None:
    store = place.open()
    item = asked(store)
    with pytest.raises(Problem) as error:
        run(decide(store, of(RITA), item.id, Approve(), digest="0" * 64, key="k", channel="inbox"))
    assert (error.value.type, error.value.members["digest"]) == ("digest-mismatch", item.digest)
    assert run(show(store, of(RITA), item.id)).request.status == "pending"
    with pytest.raises(UnknownPending):
        run(decide(store, of(RITA), "pend_0", Approve(), digest=item.digest, key="k", channel="inbox"))


def test_an_edit_is_shown_as_what_it_changes_before_it_counts(place: Place) -> None:
    store = place.open()
    item = asked(store)
    text = '{"order": 1042, "amount": 20, "note": "half"}'
    found = run(check_edit(store, of(RITA), item.id, digest=item.digest, text=text))
    assert found.errors == () and not found.by_tool
    assert found.changes == (
        Change(pointer="/amount", before="49.9", after="20"),
        Change(pointer="/note", before='""', after='"half"'),
    )
    assert found.digest != item.digest
    same = run(check_edit(store, of(RITA), item.id, digest=item.digest, text=item.json_text("args")))
    assert (same.digest, same.changes) == (item.digest, ())


def test_with_the_tool_an_edit_is_read_as_the_tool_reads_it(place: Place) -> None:
    store = place.open()
    agent = desk(store)
    item = agent.invoke("Refund order 1042").checkpoint.pending[0]
    read = inbox_of(store, agents=agent).site.tool_of(item)
    assert read is not None
    found = run(
        check_edit(
            store, of(RITA), item.id, digest=item.digest, text='{"order": 1042, "amount": 20}', tool_of=lambda _: read
        )
    )
    assert (found.text, found.by_tool) == ('{"order":1042,"amount":20.0,"note":""}', True)
    store.decide(item.id, Approve(args={"order": 1042, "amount": 20}), by="rita", digest=item.digest)
    agent.recover_all()
    assert store.audit(pending_id=item.id) is not None
    ran = [each.ran_digest for each in store.audit(pending_id=item.id) if each.checked]
    assert ran == [found.digest]


@pytest.mark.parametrize(
    ("text", "pointers"),
    [
        ('{"order": "a lot"}', ["/order"]),
        ('{"order": 1, "amount": "x", "note": 5}', ["/amount", "/note"]),
        ("{}", [""]),
    ],
)
def test_what_does_not_fit_is_named_by_its_place(place: Place, text: str, pointers: list[str]) -> None:
    store = place.open()
    item = asked(store)
    found = run(check_edit(store, of(RITA), item.id, digest=item.digest, text=text))
    assert sorted(each.pointer for each in found.errors) == pointers


@pytest.mark.parametrize("text", ["", "[1]", '{"order": 1, "order": 2}', '{"order": NaN}', "nothing"])
def test_what_is_no_json_object_is_no_edit(place: Place, text: str) -> None:
    store = place.open()
    item = asked(store)
    with pytest.raises(Problem) as error:
        run(check_edit(store, of(RITA), item.id, digest=item.digest, text=text))
    assert error.value.type == "invalid-edit"


def test_a_changed_tool_is_not_asked() -> None:
    @tool(requires_approval=True)
    def refund(order: int) -> str:
        """Refund an order."""
        return "refunded"

    inbox = inbox_of()
    store = inbox.site.store
    item = asked(store)
    other = Agent(name="desk", model=ScriptedModel(["x"]), tools=[refund], store=store)
    assert inbox_of(store, agents=other).site.tool_of(item) is None
    assert inbox_of(store, agents=desk(store)).site.tool_of(item) is not None


def test_a_tool_is_found_in_an_agent_that_is_a_tool() -> None:
    inbox = inbox_of()
    store = inbox.site.store
    inner = desk(store, name="clerk")
    model = ScriptedModel.by_turn([call("clerk", {"input": "Refund order 3"}), "Done."])
    outer = Agent(name="lead", model=model, tools=[inner.as_tool(description="Refunds.")], store=store)
    item = outer.invoke("Refund order 3").checkpoint.pending[0]
    assert inbox_of(store, agents=outer).site.tool_of(item) is not None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    before=st.dictionaries(st.text(max_size=3), VALUES, max_size=4),
    after=st.dictionaries(st.text(max_size=3), VALUES, max_size=4),
)
def test_changes_are_all_that_differs(before: Any, after: Any) -> None:
    """Making the changes to what was there gives what is there now; what is equal has none."""
    before, after = parse(canonical(before)), parse(canonical(after))
    changes = changes_between(before, after)
    for change in changes:
        assert change.before != change.after
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in change.pointer.split("/")[1:]]
        place: Any = before
        for part in way:
            place = place[part]
        if change.after is None:
            del place[last]
        else:
            place[last] = parse(change.after)
    assert canonical(dict(sorted(before.items()))) == canonical(dict(sorted(after.items()))) or _same(before, after)


def _same(first: Any, second: Any) -> bool:
    """Whether two values are the same but for the order of their members."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    return canonical(first) == canonical(second)
