"""The JSON of answers: each says its kind, is read as what it was, and has the digest that it always had."""

from __future__ import annotations

from typing import Any, assert_never

import pytest
from pydantic import TypeAdapter
from tables import each

from phronomy import (
    Agent,
    Approve,
    CheckpointAlreadyResumed,
    Defer,
    InvalidDecision,
    MemoryStore,
    Reject,
    Respond,
    Skip,
    tool,
)
from phronomy.approvals import Answer, read_answer
from phronomy.approvals.answers import answer_digest
from phronomy.testing import ScriptedModel, call

SECRET = "sk-not-for-errors"

# An answer, its JSON, the JSON that the release before wrote, and its digest there.
ANSWERS = [
    (
        Approve(),
        '{"kind":"approve","args":null}',
        '{"args":null}',
        "f54d945238204cf6530f0cf5c6bc1c45d6c6c3beb33a9fe5fe5c4d611318f58a",
    ),
    (
        Approve(args={"amount": 40.0, "b": [1]}),
        '{"kind":"approve","args":{"amount":40.0,"b":[1]}}',
        '{"args":{"amount":40.0,"b":[1]}}',
        "b68246a3589954b9df5b58f5f547a0319f13121ad26c60de0b69ebf07c41056d",
    ),
    (
        Reject(),
        '{"kind":"reject","reason":null,"then":"continue"}',
        '{"reason":null,"then":"continue"}',
        "125447c77558796b99260360cd8f26945a029c1ff51c089b66030e6b26916d13",
    ),
    (
        Reject(reason="no", then="end"),
        '{"kind":"reject","reason":"no","then":"end"}',
        '{"reason":"no","then":"end"}',
        "36e3b9b8dbfc14d1047954b7277ab87719a7563b0b7d66f704c525febea27297",
    ),
    (
        Respond(content=None),
        '{"kind":"respond","content":null}',
        '{"content":null}',
        "bce626120e4959d7f1c354085763120bc3107daf286a9cdb51a22b9323f63c4f",
    ),
    (
        Respond(content={"a": 1}),
        '{"kind":"respond","content":{"a":1}}',
        '{"content":{"a":1}}',
        "3d65b64290d4c8066a201e10a9de00006438931904ee6a61e0ab102bedc41bcd",
    ),
    (Skip(), '{"kind":"skip"}', "{}", "792e466a7da45db080fa0fd5055702d0f680376149067f91e11ef8b6cae1f8f6"),
]


@each("answer, text, before, digest", ANSWERS)
def test_an_answer_says_its_kind_and_is_read_as_it_was(answer: Answer, text: str, before: str, digest: str) -> None:
    assert answer.model_dump_json() == text
    assert read_answer(text) == read_answer(text.encode()) == answer
    assert read_answer(before) == answer
    assert type(answer).model_validate_json(before) == answer
    for form in (text, before):
        assert TypeAdapter(Answer).validate_json(form) == answer
    assert TypeAdapter(Answer).validate_python(answer) is answer
    assert answer_digest(answer, "d" * 8) == digest
    assert "kind" not in repr(answer)


def test_values_come_back_to_the_letter() -> None:
    values = {
        "sum": 0.1 + 0.2,
        "id": 9007199254740993,
        "big": 10**30,
        "whole": 40.0,
        "text": "Grüße \u2028",
        "deep": [{"kind": "skip"}],
    }
    for answer in (Approve(args=values), Respond(content=values), Respond(content=[*values.values()])):
        assert read_answer(answer.model_dump_json()).model_dump_json() == answer.model_dump_json()


@each(
    "text, said",
    [
        ("no JSON", "not JSON"),
        (b"\xff", "UTF-8"),
        (5, "text or bytes"),
        ("null", "kind is 'approve', 'reject', 'respond' or 'skip'"),
        ("[]", "kind is"),
        ('{"kind":null,"args":null}', "kind is"),
        ('{"kind":["approve"]}', "kind is"),
        ('{"kind":"cancel"}', "kind is"),
        ('{"kind":"APPROVE"}', "kind is"),
        (Defer().model_dump_json(), "kind is"),
        ('{"kind":"approve","kind":"reject"}', "twice"),
        (f'{{"kind":"approve","content":"{SECRET}"}}', "approve.content"),
        (f'{{"kind":"skip","args":{{"a":"{SECRET}"}}}}', "skip.args"),
        (f'{{"args":{{}},"content":"{SECRET}"}}', "approve.content"),
        (f'{{"kind":"approve","args":"{SECRET}"}}', "approve.args"),
        ('{"kind":"approve","args":{"a":1.00000000000000000000001}}', "digits"),
        (f'{{"kind":"reject","then":"{SECRET}"}}', "reject.then"),
        ('{"kind":"respond"}', "respond.content: Field required"),
        (f'{{"answer":"{SECRET}"}}', "skip.answer"),
    ],
)
def test_other_texts_are_no_answers(text: Any, said: str) -> None:
    with pytest.raises(InvalidDecision, match="this is no answer") as error:
        read_answer(text)
    assert said in str(error.value)
    assert SECRET not in str(error.value)


@each("made, kind", [(Approve, "reject"), (Skip, None), (Defer, "approve"), (Defer, "skip")])
def test_an_answer_has_no_other_kind_than_its_own(made: Any, kind: Any) -> None:
    with pytest.raises(InvalidDecision, match="kind"):
        made(kind=kind)


def test_an_answer_is_told_by_its_kind() -> None:
    def told(answer: Answer) -> str:
        match answer.kind:
            case "approve" | "reject" | "respond" | "skip":
                return answer.kind
            case never:
                assert_never(never)

    assert [told(answer) for answer, *_ in ANSWERS] == ["approve"] * 2 + ["reject"] * 2 + ["respond"] * 2 + ["skip"]


def test_the_json_schema_of_an_answer_has_the_values_that_it_takes() -> None:
    shapes = TypeAdapter(Answer).json_schema()["$defs"]
    assert sorted(shape["properties"]["kind"]["const"] for shape in shapes.values()) == [
        "approve",
        "reject",
        "respond",
        "skip",
    ]
    assert shapes["Approve"]["properties"]["args"]["anyOf"] == [{"type": "object"}, {"type": "null"}]
    assert "type" not in shapes["Respond"]["properties"]["content"]


def test_a_decision_that_is_read_from_either_form_is_the_same_under_its_key() -> None:
    @tool(requires_approval=True)
    def pay(amount: float) -> str:
        return f"paid {amount}"

    store = MemoryStore()
    agent = Agent(name="desk", model=ScriptedModel([call("pay", {"amount": 40.0}), "Done."]), tools=[pay], store=store)
    waits = agent.invoke("Pay").checkpoint
    assert waits is not None
    asked = waits.pending[0]

    def send(text: str) -> Any:
        return store.decide(asked.id, read_answer(text), by="ada", digest=asked.digest, key="form-7")

    first = send('{"args":{"amount":20.0}}')
    assert first.status == "decided"
    assert send('{"kind":"approve","args":{"amount":20.0}}').decision == first.decision
    assert len([*store.audit(pending_id=asked.id)]) == 1
    with pytest.raises(CheckpointAlreadyResumed):
        send('{"kind":"approve","args":{"amount":20}}')
