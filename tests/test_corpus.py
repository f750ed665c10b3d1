"""Frozen texts of requests that ask for people: each is read by this release as it was written, and goes on from there.

They are never changed. A format that changes gets a new text beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drivers import Driver
from places import Place

from phronomy import Agent, Approval, Approve, AuditRecord, Checkpoint, Escalate, Grant, Principal, tool
from phronomy.people import Deputy, Person, StoreDirectory
from phronomy.records.calls import Reminded, Voted
from phronomy.stores import Document
from phronomy.stores.log.log import replay
from phronomy.stores.rows import Append, AuditRow, Branch, Entry
from phronomy.testing import ScriptedModel, call

CORPUS = Path(__file__).parent / "corpus"
NOW = 1_767_225_600.0 + 3600

CHECKPOINT = (CORPUS / "checkpoint-1-votes.json").read_text().rstrip()
LOG: tuple[tuple[str, str | None], ...] = tuple(
    (row["body"], row["checkpoint_id"])
    for row in map(json.loads, (CORPUS / "log-1-votes.jsonl").read_text().splitlines())
)
TRAIL = (CORPUS / "audit-1.jsonl").read_text().splitlines()
DOCUMENTS: tuple[dict[str, str], ...] = tuple(map(json.loads, (CORPUS / "documents-1.jsonl").read_text().splitlines()))


def agent(driver: Driver, done: list[int], **options: Any) -> Any:
    """The agent that the texts are of, as a later release of the program makes it."""

    def pay(order: int, amount: int = 10) -> str:
        """Do it."""
        done.append(order)
        return "paid"

    asks = Approval(
        by="finance",
        needed=2,
        rejections=2,
        not_requester=True,
        remind=[3600, 7200],
        escalate=Escalate(after=43200, by=["head", Principal(id="hanna")], needed=1),
        expires=86400,
        standing=True,
    )
    model = ScriptedModel.by_turn([call("pay", {"order": 1}), "end"])
    return Agent(name="clerk", model=model, tools=[tool(requires_approval=asks)(driver.function(pay))], **options)


def test_a_checkpoint_with_votes_is_read_as_it_was_written() -> None:
    frozen = Checkpoint.model_validate_json(CHECKPOINT)
    assert frozen.model_dump_json() == CHECKPOINT
    (item,) = frozen.pending
    (level,) = item.approvers
    assert (level.roles, level.needed, level.rejections, level.not_requester) == (("finance",), 2, 2, True)
    (step,) = level.escalations
    assert (step.after, step.roles, step.ids, step.needed) == (43200, ("head",), ("hanna",), 1)
    (vote,) = item.votes
    assert (vote.by.id, vote.behalf_of and vote.behalf_of.id, vote.channel, vote.listed) == ("dan", "bob", "chat", True)
    assert (item.remind, item.reminded, item.policy is not None) == ((3600, 7200), 1, True)
    assert frozen.requester == Principal(id="ann")


def test_a_log_with_a_reminder_and_a_vote_goes_on(driver: Driver, place: Place) -> None:
    store = place.open(clock=lambda: NOW)
    for each in DOCUMENTS:
        store.put_document(Document(kind=each["kind"], key=each["key"], text=each["text"]))
    entries = tuple(Entry(path="", body=body, checkpoint_id=id) for body, id in LOG)
    last = replay([*entries])[-1]
    branch = Branch(id=last.branch_id, run_id=last.run_id, thread_id=last.thread_id, agent="clerk")
    root = next(id for _, id in reversed(LOG) if id is not None)
    store.create(
        branch, Append(branch_id=branch.id, seq=0, entries=entries, head=root, status="suspended"), exclusive=False
    )
    journal = store.head(branch.id)[1].journal
    assert [type(each) for each in journal] == [Reminded, Voted]

    done: list[int] = []
    clerk = agent(driver, done, store=store)
    (item,) = store.load(root).pending
    fay = Principal(id="fay", roles=("finance",))
    result = driver.resume(clerk, root, decisions={item.id: Approve()}, by=fay)
    assert (result.status, done) == ("completed", [1])
    (decision,) = result.checkpoint.decisions
    assert [each.by.id for each in decision.votes] == ["dan", "fay"]


def test_the_trail_is_read_as_it_was_written(place: Place) -> None:
    store = place.open()
    records = [AuditRecord.model_validate_json(text) for text in TRAIL]
    assert [each.model_dump_json(exclude_none=True) for each in records] == TRAIL
    assert [
        (each.refused, each.vote, each.behalf_of and each.behalf_of.id, each.grant is not None) for each in records
    ] == [
        (True, False, None, False),
        (False, True, "bob", False),
        (False, False, None, False),
        (False, False, None, True),
    ]
    rows = tuple(
        AuditRow(at=NOW, run_id=each.run_id, thread_id=each.thread_id, pending_id=each.pending_id, body=text)
        for each, text in zip(records, TRAIL, strict=True)
    )
    branch = Branch(id="b1", run_id="b1", thread_id=None, agent="clerk")
    store.create(branch, Append(branch_id="b1", seq=0, audit=rows), exclusive=False)
    assert list(store.audit()) == records


@pytest.mark.parametrize(("kind", "record"), [("grant", Grant), ("person", Person), ("deputy", Deputy)])
def test_a_document_is_read_as_it_was_written(kind: str, record: type[Grant | Person | Deputy]) -> None:
    texts = [each["text"] for each in DOCUMENTS if each["kind"] == kind]
    assert texts and [record.model_validate_json(text).model_dump_json() for text in texts] == texts


def test_grants_people_and_deputies_count_as_they_did(driver: Driver, place: Place) -> None:
    store = place.open(clock=lambda: NOW)
    for each in DOCUMENTS:
        store.put_document(Document(kind=each["kind"], key=each["key"], text=each["text"]))
    directory = StoreDirectory(store)
    assert directory.resolve("chat:BOB") == Principal(id="bob", name="Bob", roles=("finance",))
    assert [(each.principal, each.deputy) for each in directory.deputies()] == [("bob", "dan")]
    (grant,) = store.grants()
    assert (grant.uses_left, [each.principal.id for each in grant.givers]) == (2, ["eve", "fay"])
    done: list[int] = []
    result = driver.invoke(agent(driver, done, store=store), "go", requester="ann")
    assert (result.status, done, store.grants()[0].uses_left) == ("completed", [1], 1)
