"""Webhooks as a channel: signatures, what is sent and answered, ids, schemas, and answers in one step or two."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from chat_scenes import OTTO, RITA, approvals_of, asked, desk, emptied, with_people
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from standardwebhooks import Webhook

from phronomy import Approval, ConfigurationError, MemoryStore
from phronomy.chat import Button, Card, Line, Refused
from phronomy.chat.webhooks import SCHEMAS, Endpoint, Webhooks, new_secret
from phronomy.chat.webhooks.payloads import LARGEST, LONGEST, event_body
from phronomy.chat.webhooks.signature import key_of, sign, verify
from phronomy.testing.chat import Clock, FakeReceiver
from phronomy.testing.chat.webhooks import ANSWER_SECRET, SECRET

# The vector of the reference libraries: https://github.com/standard-webhooks/standard-webhooks/tree/main/libraries
VECTOR_SECRET = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
VECTOR_ID, VECTOR_TIME, VECTOR_BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
VECTOR = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()


def headers(**changes: str) -> dict[str, str]:
    made = {"webhook-id": VECTOR_ID, "webhook-timestamp": str(VECTOR_TIME), "webhook-signature": VECTOR}
    return {**made, **{f"webhook-{name}": value for name, value in changes.items()}}


def checked(given: dict[str, str], body: bytes = VECTOR_BODY, *, now: float = VECTOR_TIME) -> str:
    keys = {"crm": [key_of(OTHER)], "erp": [key_of(new_secret()), key_of(VECTOR_SECRET)], "none": []}
    return verify(keys, given, body, now=now)


def test_the_vector_of_the_reference_libraries_is_right() -> None:
    assert sign([key_of(VECTOR_SECRET)], VECTOR_ID, VECTOR_TIME, VECTOR_BODY) == headers()
    assert key_of("whsec_" + VECTOR_SECRET) == key_of(VECTOR_SECRET)
    for now in (VECTOR_TIME, VECTOR_TIME + 300, VECTOR_TIME - 300):
        assert checked(headers(), now=now) == "erp"
    for now in (VECTOR_TIME + 301, VECTOR_TIME - 301):
        with pytest.raises(Refused, match="too old"):
            checked(headers(), now=now)


@pytest.mark.parametrize(
    "signature", [f"v1a,x {VECTOR}", f"v1 , {VECTOR}", f"{VECTOR} v2,x", "  " + VECTOR, f"ü \x00,, {VECTOR}"]
)
def test_one_right_signature_among_others_is_enough(signature: str) -> None:
    assert checked(headers(signature=signature)) == "erp"


@pytest.mark.parametrize(
    "changed",
    [
        {"signature": ""},
        {"signature": VECTOR.removeprefix("v1,")},
        {"signature": VECTOR.replace("v1", "v2")},
        {"signature": VECTOR + "="},
        {"signature": " ".join(["x"] * 20 + [VECTOR])},
        {"signature": "v1,\udcff"},
        {"timestamp": f"{VECTOR_TIME}.9"},
        {"timestamp": f"+{VECTOR_TIME}"},
        {"timestamp": f"{VECTOR_TIME}\n"},
        {"timestamp": "١٦١٤٢٦٥٣٣٠"},
        {"timestamp": "9" * 400},
        {"timestamp": ""},
        {"id": ""},
        {"id": VECTOR_ID + "."},
        {"id": "x" * 201},
        {"id": "ü"},
    ],
)
def test_what_is_not_signed_as_the_rules_say_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        checked(headers(**changed))
    assert refused.value.status == 401


def test_a_dot_in_an_id_would_let_a_signature_mean_another_time() -> None:
    key = key_of(VECTOR_SECRET)
    signed = sign([key], "a", VECTOR_TIME, b"1614265999.{}")
    moved = {**sign([key], f"a.{VECTOR_TIME}", 1614265999, b"{}")}
    assert signed["webhook-signature"] == moved["webhook-signature"]
    with pytest.raises(Refused):
        checked(moved, b"{}", now=1614265999)


@settings(max_examples=60, deadline=None)
@given(body=st.text(max_size=80).map(json.dumps), secret=st.binary(min_size=24, max_size=64))
def test_the_reference_library_and_ours_prove_what_the_other_signs(body: str, secret: bytes) -> None:
    text = base64.b64encode(secret).decode()
    reference, now = Webhook(text), int(time.time())
    ours = sign([key_of(OTHER), key_of(text)], "msg_1", now, body.encode())
    assert reference.verify(body, ours) == json.loads(body)
    theirs = reference.sign("msg_1", datetime.fromtimestamp(now, UTC), body)
    given = {**ours, "webhook-signature": theirs}
    assert verify({"erp": [key_of(text)]}, given, body.encode(), now=now) == "erp"


def test_a_new_secret_is_one_that_counts() -> None:
    secret = new_secret()
    assert secret.startswith("whsec_") and len(key_of(secret)) == 32 and new_secret() != secret


# What comes in


class Scene:
    """A request that waits at a fake receiver."""

    def __init__(self, *, gate: Any = True, **options: Any) -> None:
        self.clock = Clock()
        self.receiver = FakeReceiver(self.clock)
        self.store = with_people(MemoryStore(clock=self.clock), self.receiver)
        self.approvals = approvals_of(self.store, self.receiver, **options)
        self.gate = gate
        self.item = asked(self.approvals, self.store, gate=gate)
        emptied(self.approvals, self.clock)

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *error: object) -> None:
        self.receiver.close()

    @property
    def shown(self) -> Any:
        [found] = self.receiver.messages()
        return found

    def carried_out(self) -> None:
        desk(self.approvals, self.store, self.gate).recover_all()
        emptied(self.approvals, self.clock)


@settings(max_examples=150, deadline=None)
@given(
    body=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=50),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["data", "by", "values"]) | st.text(max_size=5), inner, max_size=4)
        ),
        max_leaves=10,
    ).map(lambda value: json.dumps(value).encode()),
    sealed=st.booleans(),
    hostile=st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), st.text()),
)
def test_any_bytes_get_a_4xx(body: bytes, sealed: bool, hostile: dict[str, str]) -> None:
    clock = Clock()
    channel = Webhooks(endpoints={"erp": Endpoint(url="https://erp.example", secrets=[OTHER], answer_secrets=[SECRET])})
    approvals = approvals_of(MemoryStore(clock=clock), _Only(channel))  # type: ignore[arg-type]
    made = sign([key_of(SECRET)], "msg_1", int(clock.now), body) if sealed else hostile
    response = approvals.handle("POST", "/chat/webhook", made, body)
    assert response.status in ((400,) if sealed else (401,))


class _Only:
    """A platform that is its channel alone."""

    def __init__(self, channel: Webhooks) -> None:
        self.channel = channel
        self.place = "webhook:erp"

    def connect(self, handler: object) -> None:
        pass


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, "data: Field required; by: Field required"),
        ({"data": "secret", "by": "7"}, "data: String should match pattern"),
        ({"data": "z" + "A" * 44, "by": "7"}, "data: String should match pattern"),
        ({"data": "a" + "A" * 44, "by": 7}, "by: Input should be a valid string"),
        ({"data": "a" + "A" * 44, "by": ""}, "by: String should have at least 1 character"),
        ({"data": "a" + "A" * 44, "by": "secret person"}, "by: an id is ASCII"),
        ({"data": "a" + "A" * 44, "by": "x" * 201}, "by: String should have at most 200 characters"),
        ({"data": "e" + "A" * 44, "by": "7", "values": {"arg:secret": 7}}, "values: Input should be a valid string"),
        ({"data": "a" + "A" * 44, "by": "7", "secret": 1}, "a field that is not known"),
        ([], "the body: Input should be a valid dictionary"),
    ],
)
def test_what_is_wrong_with_an_answer_is_told_and_not_quoted(answer: object, why: str) -> None:
    with Scene() as scene:
        response = scene.receiver.deliver(scene.receiver.signed(json.dumps(answer).encode()))
        assert response.status == 400 and why in response.body.decode() and b"secret" not in response.body


def test_a_replay_is_answered_alike_and_counts_once() -> None:
    with Scene() as scene:
        sent = scene.receiver.sign(scene.shown, "approve", RITA)
        replies = [scene.approvals.handle("POST", sent.path, sent.headers, sent.body) for _ in range(3)]
        assert {(each.status, each.body) for each in replies} == {(200, b'{"notice":null}')}
        assert len(list(scene.store.audit(pending_id=scene.item.id))) == 1
        scene.clock.move(301)
        assert scene.approvals.handle("POST", sent.path, sent.headers, sent.body).status == 401


def test_an_answer_comes_in_one_step_or_in_two() -> None:
    with Scene() as scene:
        receiver, shown = scene.receiver, scene.shown
        reply = json.loads(receiver.click(shown, "edit", RITA).body)
        assert reply["form"]["data"] == shown.buttons["edit"] and reply["form"]["longest"] == LONGEST
        [order, amount] = reply["form"]["fields"]
        assert (order["name"], order["value"]) == ("arg:order", "7")
        assert amount == {
            "name": "arg:amount",
            "label": "amount",
            "value": "49.9",
            "kind": "text",
            "choices": [],
            "required": False,
            "hint": "Asked: 49.9",
        }
        assert receiver.answer(shown, "edit", RITA, {"arg:amount": "a lot"})["errors"].keys() == {"arg:amount"}
        assert receiver.answer(shown, "edit", RITA, {"arg:amount": "20"}) == {"notice": None}
        decision = scene.store.request(scene.item.id).decision
        assert decision is not None and json.loads(decision.json_text("args")) == {"order": 7, "amount": 20}


@pytest.mark.parametrize(
    ("action", "values", "wrong"),
    [
        ("edit", {"arg:amout": "20"}, {"arg:amout": "There is no such argument."}),
        ("edit", {"amount": "20"}, {"amount": "There is no such field."}),
        ("edit", {"arg:amount": "2" * (LONGEST + 1)}, {"arg:amount": "10,000 characters at most."}),
        ("reason", {"content": "no"}, {"content": "There is no such field."}),
        ("reason", {"reason": " "}, {"reason": "Say why."}),
        ("reason", {}, {"reason": "Say why."}),
        ("respond", {"reason": "no"}, {"reason": "There is no such field."}),
        ("approve", {"arg:amount": "20"}, {"arg:amount": "There is no such field."}),
        ("reject", {"reason": "no"}, {"reason": "There is no such field."}),
    ],
)
def test_a_field_that_is_not_there_decides_nothing(action: Any, values: dict[str, str], wrong: dict[str, str]) -> None:
    with Scene() as scene:
        assert scene.receiver.answer(scene.shown, action, RITA, values) == {"errors": wrong}
        assert scene.store.request(scene.item.id).status == "pending"


@pytest.mark.parametrize(
    ("action", "values", "kind"),
    [
        ("approve", {}, "approve"),
        ("reject", {}, "reject"),
        ("reason", {"reason": "no"}, "reject"),
        ("respond", {"content": "done by hand"}, "respond"),
        ("edit", {}, "approve"),
    ],
)
def test_each_answer_can_be_given_at_once(action: Any, values: dict[str, str], kind: str) -> None:
    with Scene() as scene:
        assert scene.receiver.answer(scene.shown, action, RITA, values) == {"notice": None}
        decision = scene.store.request(scene.item.id).decision
        assert decision is not None and (decision.kind, decision.by and decision.by.id) == (kind, "rita")


def test_what_is_hidden_is_edited_neither_in_two_steps_nor_in_one() -> None:
    with Scene() as scene:
        approvals_of(scene.store, scene.receiver, hide=["amount"])
        for values in ({"arg:order": "8"}, {"arg:amount": "20"}, {}):
            told = scene.receiver.answer(scene.shown, "edit", RITA, values)["notice"]
            assert told == json.loads(scene.receiver.click(scene.shown, "edit", RITA).body)["notice"]
            assert "does not fit into a form here" in told
        assert scene.store.request(scene.item.id).status == "pending"


@pytest.mark.parametrize("name", ["\ud800", "arg:\ud800"])
def test_a_name_that_is_no_text_is_told_as_it_came(name: str) -> None:
    with Scene() as scene:
        assert scene.receiver.answer(scene.shown, "edit", RITA, {name: "x"})["errors"].keys() == {name}


def test_each_endpoint_answers_for_its_own_people() -> None:
    with Scene() as scene, FakeReceiver(scene.clock) as other:
        crm = Endpoint(url=other.url, secrets=[OTHER], answer_secrets=[new_secret()])
        both = Webhooks(
            endpoints={"erp": scene.receiver.endpoint, "crm": crm}, internal_hosts=["127.0.0.1"], clock=scene.clock
        )
        approvals = approvals_of(scene.store, _Only(both))  # type: ignore[arg-type]
        sent = scene.receiver.sign(scene.shown, "approve", RITA)
        moved = other.signed(sent.body, secret=crm.answer_secrets[0])
        response = approvals.handle("POST", sent.path, moved.headers, sent.body)
        assert f"webhook:crm:{RITA}" in json.loads(response.body)["notice"]
        assert scene.store.request(scene.item.id).status == "pending"
        assert approvals.handle("POST", sent.path, sent.headers, sent.body).body == b'{"notice":null}'


def test_an_endpoint_without_a_secret_for_answers_gives_none() -> None:
    with Scene() as scene:
        one_way = Webhooks(
            endpoints={"erp": Endpoint(url=scene.receiver.url, secrets=[SECRET])},
            internal_hosts=["127.0.0.1"],
            clock=scene.clock,
        )
        approvals = approvals_of(scene.store, _Only(one_way))  # type: ignore[arg-type]
        sent = scene.receiver.sign(scene.shown, "approve", RITA)
        assert approvals.handle("POST", sent.path, sent.headers, sent.body).status == 401
        mirrored = scene.receiver.signed(sent.body, secret=SECRET)
        assert approvals.handle("POST", sent.path, mirrored.headers, sent.body).status == 401
        asked(approvals, scene.store, 8)
        emptied(approvals, scene.clock)
        assert scene.receiver.messages()[1].buttons == {}


# What goes out


def test_what_is_sent_and_answered_fits_the_schemas() -> None:
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
    event, answer, reply = (Draft202012Validator(SCHEMAS[name]) for name in ("event", "answer", "reply"))
    gate = Approval(needed=2, remind=[60], title="refund it", context="a customer asks")
    with Scene(gate=gate) as scene:
        receiver, shown = scene.receiver, scene.shown
        sent = [receiver.sign(shown, "approve", RITA), receiver.sign(shown, "edit", OTTO)]
        sent += [receiver.sign(shown, "edit", OTTO, {"arg:amount": "x"}), receiver.sign(shown, "reject", "stranger")]
        sent += [receiver.sign(shown, "approve", OTTO)]
        for each in sent:
            answer.validate(json.loads(each.body))
            reply.validate(json.loads(receiver.deliver(each).body))
            scene.clock.move(70)
            scene.carried_out()
        for got in receiver.got:
            assert got.is_proven and got.headers["content-type"] == "application/json" and len(got.body) < LARGEST
            event.validate(got.event)
        kinds = [got.event["type"] for got in receiver.got]
        assert kinds[0] == "request.asked" and {"request.changed", "request.reminded"} <= {*kinds}
        assert receiver.messages()[0].text.splitlines()[1].endswith("; done")
        first = receiver.got[0].event
        assert first["data"]["pending_id"] == scene.item.id and first["data"]["digest"] == scene.item.digest
        assert first["timestamp"] == "2027-01-15T08:00:00Z" and first["data"]["link"].endswith(scene.item.id)
        assert not answer.is_valid({**json.loads(sent[0].body), "more": 1})


def test_what_is_tried_again_has_the_same_id_and_a_new_time() -> None:
    with Scene() as scene:
        receiver = scene.receiver
        receiver.script((500, {}), "dropped", (302, {"Location": receiver.url}))
        receiver.click(scene.shown, "approve", RITA)
        emptied(scene.approvals, scene.clock)
        scene.carried_out()
        asked_, *tries, done = receiver.got
        assert len({got.id for got in tries}) == 1 and len({got.id for got in receiver.got}) == 3
        times = [int(got.headers["webhook-timestamp"]) for got in tries]
        assert len(tries) == 4 and times == sorted(set(times))
        versions = [got.event["data"]["version"] for got in (asked_, tries[0], done)]
        assert versions == sorted(set(versions))
        assert len({got.event["data"]["version"] for got in tries}) == 1
        assert scene.shown.edits == 2


def test_a_status_that_comes_back_is_another_event() -> None:
    with Scene() as scene:
        channel = scene.receiver.channel
        card = Card(title="t", state="goes on", status="running", pending_id="p", version=2)
        ref = channel.post("erp", card, key="k")
        for version in (3, 3, 4):
            channel.update(ref, Card(title="t", state="goes on", status="failed", pending_id="p", version=version))
        channel.update(ref, Card(title="t", state="goes on", status="running", pending_id="p", version=4))
        ids = [got.id for got in scene.receiver.got[2:]]
        assert ids[0] == ids[1] and len({*ids}) == 3


@settings(max_examples=40, deadline=None)
@given(
    lines=st.lists(st.tuples(st.text(max_size=80), st.text(max_size=300)), max_size=60),
    notes=st.lists(st.text(min_size=300, max_size=600), max_size=12),
)
def test_an_event_stays_below_20_kb_and_loses_no_answer(lines: list[tuple[str, str]], notes: list[str]) -> None:
    card = Card(
        title="\U0001f600" * 140,
        state="waits",
        status="\u4e00" * 2_000,
        lines=tuple(Line(name=name, value=value) for name, value in lines),
        notes=tuple(notes),
        buttons=tuple(Button(action=each, label="", data="a" * 45) for each in ("approve", "reject")),
    )
    body = event_body("request.asked", card, 0, answers=True)
    data = json.loads(body)["data"]
    assert len(body) < LARGEST and data["answers"].keys() == {"approve", "reject"}
    kept = [(each["name"], each["value"]) for each in data["lines"]]
    whole = [(line.name, line.value) for line in card.lines]
    if kept != whole:
        assert kept[:-1] == whole[: len(kept) - 1] and kept[-1][0] == f"and {len(whole) - len(kept) + 1} more"
    assert data["notes"] == notes or (len(data["notes"]) == 1 and "SHA-256" in data["notes"][0])


def test_more_at_once_than_people_would_read_are_told_one_by_one() -> None:
    with Scene(digest_above=2) as scene:
        for order in range(10):
            asked(scene.approvals, scene.store, order)
        emptied(scene.approvals, scene.clock)
        assert len(scene.receiver.messages()) == 11


# Settings

RIGHT: dict[str, Any] = {"url": "https://erp.example/hook?token=hidden", "secrets": [SECRET]}


@pytest.mark.parametrize(
    ("endpoint", "options"),
    [
        *(
            ({"url": url}, {})
            for url in (
                *("", "erp.example", "http://erp.example", "ftp://erp.example", "https://", "https://:443/"),
                *("https://user:hidden@erp.example", "https://erp.example/#hidden", "https://erp.example:0/"),
                *("https://erp.example:99999/", "https://erp\\.example", "https://erp.example/ hidden"),
                *("https://erp.exampl\u00e9/", "https://[fe80::1%25eth0]/", "https://erp.example/\nhidden", 7),
            )
        ),
        *(({"secrets": secrets}, {}) for secrets in ([], SECRET, ["whsec_hidden"], ["hidden!"], [7], [OTHER[:30]])),
        ({"answer_secrets": [SECRET]}, {}),
        ({"answer_secrets": "hidden"}, {}),
        ({"seconds": -1}, {}),
        ({}, {"name": "Webhook"}),
        ({}, {"timeout": 0}),
        ({}, {"timeout": 60}),
        ({}, {"retries": []}),
        ({}, {"retries": [0]}),
        ({}, {"internal_hosts": "erp.example"}),
        ({}, {"endpoints": {}}),
        ({}, {"endpoints": {"ERP": Endpoint(**RIGHT)}}),
        (
            {},
            {
                "endpoints": {
                    "erp": Endpoint(**RIGHT, answer_secrets=[ANSWER_SECRET]),
                    "crm": Endpoint(**RIGHT, answer_secrets=[ANSWER_SECRET]),
                }
            },
        ),
    ],
)
def test_wrong_settings_are_refused_and_not_quoted(endpoint: dict[str, Any], options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as error:
        Webhooks(**{"endpoints": {"erp": Endpoint(**{**RIGHT, **endpoint})}, **options})
    assert "hidden" not in str(error.value) and "whsec_M" not in str(error.value)


def test_no_repr_has_a_secret() -> None:
    endpoint = Endpoint(**RIGHT, answer_secrets=[ANSWER_SECRET])
    made = Webhooks(endpoints={"erp": endpoint})
    assert repr(made) == "Webhooks(name='webhook', endpoints=['erp'])"
    assert repr(endpoint) == "Endpoint(seconds=0.0)"
    assert "hidden" not in repr(vars(made)) and "\\x" not in repr(made._sides)
