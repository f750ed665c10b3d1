"""The HTTP API of the inbox, on every store: reading, deciding, the trail, grants and runs."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from inbox_api_scenes import API, ByToken, api_of, bearer, ids, problem
from inbox_scenes import asked, desk, run
from places import Place

from phronomy import Agent, Approval, MemoryStore, Reject, tool
from phronomy.foundation.json_text import canonical, parse
from phronomy.inbox.api import audit
from phronomy.inbox.api.audit import cell
from phronomy.inbox.operating import Started
from phronomy.stores.base import Store
from phronomy.stores.derived import room
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.worlds(2)

# Requests


def test_requests_are_listed_page_by_page_and_none_twice(place: Place) -> None:
    store = place.open()
    items = [asked(store, number) for number in range(5)]
    api = api_of(store)
    first = api.get(f"{API}/requests?limit=2&tool=refund")
    body = first.json()
    assert ids(body["items"]) == [items[0].id, items[1].id]
    assert first.headers["link"] == f'<{API}/requests?limit=2&tool=refund&cursor={body["next"]}>; rel="next"'
    assert ids(api.pages("/requests", limit=2)) == [each.id for each in items]
    assert ids(api.pages("/requests", limit=2, order="newest")) == [each.id for each in reversed(items)]
    row = body["items"][0]
    assert row["args"] == items[0].json_text("args") and row["digest"] == items[0].digest
    assert row["may"] == {
        "answers": ["approve", "edit", "reject", "respond"], "why_not": None, "said": None, "uncertain": False,
    }  # fmt: skip
    assert row["requested_at"].endswith("Z") and row["requester"]["id"] == "ann"
    assert api.read("/requests/count") == {"count": 5, "more": False, "text": "5"}


def test_filters_find_what_they_say(place: Place) -> None:
    store = place.open()
    first = asked(store, 1, thread_id="t1", label="vip")
    second = asked(store, 2, gate=Approval(by="lead", expires=3600), requester="bob")
    api = api_of(store)

    def found(**wanted: Any) -> list[str]:
        assert api.read("/requests/count", **wanted)["count"] == len(api.pages("/requests", **wanted))
        return ids(api.pages("/requests", **wanted))

    assert found(thread="t1") == found(label="vip") == found(requester="ann") == [first.id]
    assert found(requester="bob") == found(expires_within=4000) == [second.id]
    assert found(tool="refund") == found(risk="high") == found(agent="desk") == [first.id, second.id]
    assert found(tool="other") == found(older_than=100) == found(state="expired") == []
    assert found(state="pending", newer_than=1000) == [first.id, second.id]
    assert found(text="REFUND 2") == [second.id]
    assert ids(api.as_("otto").pages("/requests", mine=True)) == [first.id]
    store.clock = lambda: datetime.now(UTC).timestamp() + 7200
    assert found(state="expired") == [second.id] and found(state="pending") == [first.id]


def test_a_request_says_all_that_is_needed_to_decide_it(place: Place) -> None:
    store = place.open()
    item = asked(store, 7, gate=Approval(by="lead", needed=2))
    api = api_of(store)
    shown = api.read(f"/requests/{item.id}")
    assert shown["args"] == '{"order":7,"amount":49.9,"note":""}'
    assert shown["arguments"] == {"order": 7, "amount": 49.9, "note": ""}
    assert shown["schema"]["required"] == ["order"] and shown["description"] == "Refund an order, in euros."
    assert (shown["status"], shown["run_status"]) == ("pending", "suspended")
    level = shown["levels"][0]
    assert (level["of"], level["roles"], level["needed"], level["counted"]) == ("", ["lead"], 2, 0) and level["who"]
    assert api.as_("otto").read(f"/requests/{item.id}")["may"]["why_not"] == "not_an_approver"


def test_the_tag_of_a_request_changes_with_a_vote_and_is_of_one_person(place: Place) -> None:
    store = place.open()
    item = asked(store, gate=Approval(by="lead", needed=2))
    api = api_of(store)
    tag = api.get(f"{API}/requests/{item.id}").headers["etag"]
    assert tag.startswith('W/"')
    for given in (tag, f'"x", {tag}', tag.removeprefix("W/"), "*"):
        again = api.get(f"{API}/requests/{item.id}", headers={"if-none-match": given})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    others = api.as_("otto").get(f"{API}/requests/{item.id}", headers={"if-none-match": tag})
    assert others.status_code == 200 and others.headers["etag"] != tag
    assert api.decide(item, "approve").json()["status"] == "pending"
    after = api.get(f"{API}/requests/{item.id}", headers={"if-none-match": tag})
    assert after.status_code == 200 and after.json()["digest"] == item.digest
    assert after.json()["may"] == {"answers": [], "why_not": "voted", "said": None, "uncertain": False}


# Deciding


def test_a_decision_is_recorded_once_and_told_again_under_its_key(place: Place) -> None:
    store = place.open()
    item = asked(store)
    api = api_of(store)
    first = api.decide(item, "approve", key='"quoted key"')
    assert first.status_code == 200 and first.json()["decision"]["by"]["id"] == "rita"
    again = api.decide(item, "approve", key="quoted key")
    assert again.json() == first.json()
    assert problem(api.decide(item, "reject", key="quoted key")) == (422, "key-reused")
    (record,) = store.audit(pending_id=item.id)
    assert (record.kind, record.channel) == ("approve", "api") and record.key not in (None, "quoted key")
    # The key is Rita's: Otto's of the same text is another one.
    late = api.as_("otto").decide(item, "approve", key="quoted key")
    assert problem(late) == (409, "already-decided")
    said = late.json()
    assert said["title"] == "This request is decided"
    assert said["detail"] == "It was approved by rita. Your answer was not recorded."
    assert said["at"] == first.json()["decision"]["at"] and said["at"].endswith("Z")
    own = api.decide(item, "reject", key="another")
    assert problem(own) == (409, "already-decided")
    assert own.json()["detail"] == "You have decided it before: it was approved. This answer was not recorded."
    assert (said["decision"], said["by"]["name"], said["outcome"]) == ("approve", "Rita", None) and said["at"]
    assert api.read(f"/requests/{item.id}/decision/by-key/quoted key")["decision"]["decision"]["decision"] == "approve"
    theirs = api.as_("otto").get(f"{API}/requests/{item.id}/decision/by-key/quoted%20key")
    assert theirs.json() == {"recorded": False, "decision": None}
    assert [each.kind for each in store.audit()] == ["approve"]


def test_what_became_of_a_decision_is_told_once_a_worker_has_carried_it_out(place: Place) -> None:
    store = place.open()
    agent = desk(store)
    item = agent.invoke("Refund order 1").checkpoint.pending[0]
    api = api_of(store)
    api.decide(item, "approve")
    agent.recover_all()
    view = api.read(f"/requests/{item.id}/decision")
    assert (view["status"], view["outcome"]["kind"], view["run_status"]) == ("settled", "completed", "completed")
    assert view["outcome"]["text"] == "order 1: 49.9 euros are on their way"
    assert api.as_("otto").decide(item, "reject").json()["outcome"] == "completed"


def test_each_way_to_answer(place: Place) -> None:
    store = place.open()
    api = api_of(store)
    edited = api.decide(asked(store, 1), "edit", args='{"order": 1, "amount": 5.0, "note": ""}').json()
    assert edited["decision"]["args"] == '{"order":1,"amount":5.0,"note":""}'
    rejected = api.decide(asked(store, 2), "reject", reason="no", then="block").json()["decision"]
    assert (rejected["decision"], rejected["reason"], rejected["then"]) == ("reject", "no", "block")
    rejected = api.decide(asked(store, 5), "reject", reason="no", then="block_tool").json()["decision"]
    assert (rejected["decision"], rejected["then"]) == ("reject", "block_tool")
    assert api.decide(asked(store, 3), "respond", content=None).json()["decision"]["decision"] == "respond"
    assert problem(api.decide(asked(store, 4), "skip")) == (422, "invalid")


@pytest.mark.parametrize("text", ["5.0", "1e2", "12345678901234567890", "-0.0", '"\\ud800"', '{"b":1,"a":[]}', '""'])
def test_an_answer_is_kept_as_it_was_written(text: str) -> None:
    store = MemoryStore()
    item = asked(store)
    body = f'{{"answer":"respond","digest":"{item.digest}","content":{text}}}'.encode()
    headers = {"content-type": "application/json", "idempotency-key": "k"}
    assert api_of(store).post(f"{API}/requests/{item.id}/decision", content=body, headers=headers).status_code == 200
    decision = store.request(item.id).decision
    assert decision is not None and decision.json_text("content") == canonical(parse(text))


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"answer": "approve", "args": "{}"}, "/args"),
        ({"answer": "edit"}, "/args"),
        ({"answer": "respond"}, "/content"),
        ({"answer": "approve", "reason": "x"}, "/reason"),
        ({"answer": "maybe"}, "/answer"),
        ({"answer": "approve", "by": "otto"}, "/by"),
    ],
)
def test_members_that_do_not_go_together_are_refused(body: dict[str, Any], pointer: str) -> None:
    store = MemoryStore()
    item = asked(store)
    answer = api_of(store).send(f"/requests/{item.id}/decision", {"digest": item.digest, **body})
    assert problem(answer) == (422, "invalid") and answer.json()["errors"][0]["pointer"] == pointer
    assert store.request(item.id).status == "pending" and not list(store.audit())


def test_refusals_are_problems_and_change_nothing(place: Place) -> None:
    store = place.open()
    item = asked(store, gate=Approval(by="lead", expires=3600))
    api = api_of(store)
    assert problem(api.decide(item, "approve", key=None)) == (400, "key-missing")
    assert problem(api.decide(item, "approve", key="k" * 256)) == (400, "bad-request")
    stale = api.decide(item, "approve", digest="0" * 64)
    assert problem(stale) == (409, "digest-mismatch") and stale.json()["digest"] == item.digest
    wrong = api.decide(item, "edit", args='{"order": "x", "amount": 1.0}')
    assert problem(wrong) == (422, "invalid-edit") and wrong.json()["errors"][0]["pointer"] == "/order"
    assert problem(api.decide(item, "edit", args="[1]")) == (422, "invalid-edit")
    assert problem(api.as_("otto").decide(item, "approve")) == (403, "not-an-approver")
    unknown = item.evolve(id="pend_none")
    assert problem(api.decide(unknown, "approve")) == (404, "not-found")
    assert store.request(item.id).status == "pending"
    assert [each.refused for each in store.audit()] == [True]  # Otto tried
    store.clock = lambda: datetime.now(UTC).timestamp() + 7200
    assert problem(api.decide(item, "approve")) == (409, "expired")
    # What was refused has freed its key.
    other = asked(store, 2)
    assert problem(api.decide(other, "approve", key="again", digest="0" * 64)) == (409, "digest-mismatch")
    assert api.decide(other, "approve", key="again").status_code == 200


def test_two_people_vote_each_once(place: Place) -> None:
    store = place.open()
    item = asked(store, gate=Approval(needed=2))
    api = api_of(store)
    first = api.decide(item, "approve", key="v")
    assert (first.json()["status"], len(first.json()["votes"]), first.json()["decision"]) == ("pending", 1, None)
    assert api.decide(item, "approve", key="v").json()["votes"] == first.json()["votes"]
    assert api.read(f"/requests/{item.id}/decision/by-key/v")["recorded"] is True
    assert problem(api.decide(item, "approve")) == (409, "already-voted")
    done = api.as_("otto").decide(item, "approve").json()
    assert (done["status"], [each["by"]["id"] for each in done["votes"]]) == ("decided", ["rita"]) or (
        done["decision"]["decision"] == "approve"
    )


def test_an_edit_is_checked_and_nothing_is_changed(place: Place) -> None:
    store = place.open()
    item = asked(store, 5)
    for agents, by_tool in (((), False), ((desk(store),), True)):
        api = api_of(store, agents=agents)
        good = api.send(f"/requests/{item.id}/check", {"digest": item.digest, "args": '{"order":6, "amount":1e2}'})
        body = good.json()
        assert (body["valid"], body["by_tool"]) == (True, by_tool)
        assert body["args"] == ('{"order":6,"amount":100.0,"note":""}' if by_tool else '{"order":6,"amount":100.0}')
        assert {"pointer": "/order", "before": "5", "after": "6"} in body["changes"] and body["digest"] != item.digest
        bad = api.send(f"/requests/{item.id}/check", {"digest": item.digest, "args": '{"order":[]}'}).json()
        assert not bad["valid"] and bad["errors"][0]["pointer"] == "/order"
    assert problem(api.send(f"/requests/{item.id}/check", {"digest": "x", "args": "{}"})) == (409, "digest-mismatch")
    assert store.request(item.id).status == "pending" and not list(store.audit())


def calm(store: Store, number: int) -> Any:
    """A request that is not risky."""

    @tool(requires_approval=True)
    def note(text: str) -> str:
        """Write a note."""
        return text

    model = ScriptedModel.by_turn([call("note", {"text": str(number)}), "Done."])
    return Agent(name="clerk", model=model, tools=[note], store=store).invoke("Go").checkpoint.pending[0]


def test_several_are_decided_in_one_call_but_none_that_is_risky(place: Place) -> None:
    store = place.open()
    first, second, risky = calm(store, 1), calm(store, 2), asked(store)
    api = api_of(store)

    def batch(*items: Any, **body: Any) -> Any:
        sent = [{"id": each.id, "digest": each.digest} for each in items]
        return {"answer": "approve", "requests": sent, **body}

    refused = api.send("/decisions:batch", batch(first, risky, atomic=True))
    assert problem(refused) == (409, "refused") and refused.json()["pending_id"] == risky.id
    assert not list(store.audit())
    mixed = api.send("/decisions:batch", batch(first, risky, first.evolve(id="pend_x")), key="b")
    results = mixed.json()["results"]
    assert [each["id"] for each in results] == [first.id, risky.id, "pend_x"]
    assert results[0]["decision"]["status"] == "decided"
    assert [each["problem"]["type"].rpartition("/")[2] for each in results[1:]] == ["refused", "not-found"]
    assert api.send("/decisions:batch", batch(first, risky, first.evolve(id="pend_x")), key="b").json() == mixed.json()
    assert problem(api.send("/decisions:batch", batch(second), key="b")) == (422, "key-reused")
    late = api.as_("otto").send("/decisions:batch", batch(first, second, atomic=True))
    assert problem(late) == (409, "already-decided") and late.json()["by"]["id"] == "rita"
    assert store.request(second.id).status == "pending"
    assert api.send("/decisions:batch", batch(second, atomic=True)).json()["results"][0]["decision"]["decision"]
    assert problem(api.send("/decisions:batch", batch(second, second))) == (422, "invalid")
    assert [each.pending_id for each in store.audit()] == [first.id, second.id]


def test_some_of_several_that_are_decided_already_say_by_whom() -> None:
    store = MemoryStore()
    first, second = calm(store, 1), calm(store, 2)
    api = api_of(store)
    api.as_("otto").decide(first, "reject")
    sent = [{"id": each.id, "digest": each.digest} for each in (first, second)]
    body = {"answer": "reject", "requests": sent, "reason": "no"}
    one, other = api.send("/decisions:batch", body).json()["results"]
    assert (one["problem"]["type"], one["problem"]["by"]["id"]) == ("/problems/already-decided", "otto")
    assert other["decision"]["decision"]["reason"] == "no"
    governed = asked(store, 3, gate=Approval(by="lead")).evolve()
    calm_one = calm(store, 4)
    stale = [{"id": calm_one.id, "digest": "x"}, {"id": governed.id, "digest": governed.digest}]
    found = api.as_("otto").send("/decisions:batch", {"answer": "reject", "requests": stale}).json()["results"]
    assert [each["problem"]["status"] for each in found] == [409, 409]  # another digest, and a risky tool


# The trail


def test_a_long_trail_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_BATCH", 2)
    store = MemoryStore()
    for number in range(5):
        item = asked(store, number)
        store.decide(item.id, Reject(), by="rita", digest=item.digest)
    api = api_of(store)
    assert len(api.get(f"{API}/audit?format=ndjson").text.splitlines()) == 5
    assert len(api.get(f"{API}/audit?format=csv").text.splitlines()) == 6
    answer = api.get(f"{API}/audit?since=2026-01-01T00:00:00")
    assert problem(answer) == (422, "invalid") and answer.json()["errors"][0]["pointer"] == "/since"


def test_the_trail_is_paged_and_exported(place: Place) -> None:
    store = place.open()
    items = [asked(store, number) for number in range(3)]
    for item in items:
        store.decide(item.id, Reject(reason="=1+1"), by="rita", digest=item.digest, channel="test", key="secret-key")
    api = api_of(store)
    found = api.pages("/audit", limit=2)
    assert [each["pending_id"] for each in found] == [item.id for item in items]
    assert found[0]["by"]["id"] == "rita" and "secret-key" not in json.dumps(found)
    assert [each["pending_id"] for each in api.pages("/audit", request=items[1].id)] == [items[1].id]
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert api.pages("/audit", since=later) == [] and len(api.pages("/audit", until=later)) == 3
    table = api.get(f"{API}/audit", headers={"accept": "text/csv"})
    assert table.headers["content-type"].startswith("text/csv")
    assert table.headers["content-disposition"] == 'attachment; filename="audit.csv"'
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [row["pending_id"] for row in rows] == [item.id for item in items]
    assert {row["reason"] for row in rows} == {"'=1+1"} and {row["by"] for row in rows} == {"rita"}
    lines = api.get(f"{API}/audit?format=ndjson")
    assert [json.loads(line) for line in lines.text.splitlines()] == found


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_no_cell_is_a_formula(start: str) -> None:
    assert cell(f"{start}cmd") == f"'{start}cmd"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("", ""),
        ("plain", "plain"),
        ("a-b = c", "a-b = c"),
        ("it is 5; not 6", "it is 5; not 6"),
        ("a;=1+1", "a;'=1+1"),
        ('x"; "=1+1', 'x"; "\'=1+1'),
        ("a\t-1", "a\t'-1"),
        ("a|@b,+c\n=d", "a|'@b,'+c\n'=d"),
        (" =1", " '=1"),
        ("a; \uff1d1", "a; '\uff1d1"),
    ],
)
def test_no_separator_makes_a_formula_of_a_part_of_a_cell(text: str, safe: str) -> None:
    assert cell(text) == safe


def test_a_cell_of_separators_alone_takes_no_time() -> None:
    assert cell("x" + ";\n" * 200_000) == "x" + ";\n" * 200_000


def test_every_cell_is_in_quotes() -> None:
    store = MemoryStore()
    item = asked(store)
    store.decide(item.id, Reject(reason='a;=1+1\t"-2"'), by="rita", digest=item.digest)
    line = api_of(store).get(f"{API}/audit?format=csv").text.splitlines()[1]
    assert re.fullmatch(r'("([^"]|"")*",)*"([^"]|"")*"', line) and 'a;\'=1+1\t""\'-2""' in line


# Grants


def test_a_grant_is_given_shown_and_revoked(place: Place) -> None:
    store = place.open()
    item = asked(store, 3, gate=Approval(standing=True))
    api = api_of(store)
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    sent = {"request": item.id, "digest": item.digest, "scope": "tenant", "uses": 3, "until": until, "reason": "daily"}
    assert problem(api.send("/grants", sent, key=None)) == (400, "key-missing")
    made = api.send("/grants", sent, key="g")
    grant = made.json()
    assert made.status_code == 201 and made.headers["location"] == f"{API}/grants/{grant['id']}"
    assert (grant["args"], grant["uses_left"], grant["givers"][0]["person"]["id"]) == (
        item.json_text("args"), 3, "rita",
    )  # fmt: skip
    assert api.send("/grants", sent, key="g").json()["id"] == grant["id"] and len(store.grants()) == 1
    assert problem(api.send("/grants", {**sent, "uses": 4}, key="g")) == (422, "key-reused")
    assert problem(api.send("/grants", {**sent, "until": "2030-01-01T00:00:00"})) == (422, "invalid")  # no zone
    assert problem(api.send("/grants", {**sent, "digest": "x"})) == (409, "digest-mismatch")
    assert problem(api.send("/grants", {**sent, "scope": "thread"})) == (409, "refused")
    plain = asked(store, 4)  # people are asked about such a call whatever is granted
    assert problem(api.send("/grants", {**sent, "request": plain.id, "digest": plain.digest})) == (409, "refused")
    assert len(store.grants()) == 1
    assert problem(api.send("/grants", {**sent, "uses": None, "until": None})) == (422, "invalid")  # it would never end
    shown = api.get(f"{API}/grants/{grant['id']}")
    tag = shown.headers["etag"]
    assert shown.json() == grant and made.headers["etag"] == tag
    assert ids(api.read("/grants", tool="refund")["items"]) == [grant["id"]]
    path = f"{API}/grants/{grant['id']}"
    assert problem(api.request("DELETE", path)) == (428, "precondition-needed")
    for unseen in ("*", '"x", *'):
        assert problem(api.request("DELETE", path, headers={"if-match": unseen})) == (428, "precondition-needed")
    store.use_grant(grant["id"], "pend_1")
    assert problem(api.request("DELETE", path, headers={"if-match": tag})) == (412, "stale")
    gone = api.request("DELETE", path, headers={"if-match": api.get(path).headers["etag"]})
    assert gone.status_code == 200 and gone.json()["revoked_by"]["id"] == "rita"
    assert store.grants() == () and api.read("/grants")["items"] == []
    assert ids(api.read("/grants", all=True)["items"]) == [grant["id"]]
    assert problem(api.request("DELETE", f"{API}/grants/grant_x", headers={"if-match": tag})) == (404, "not-found")


def test_a_grant_that_takes_two_people_is_signed_by_the_second(place: Place) -> None:
    store = place.open()
    item = asked(store, 3, gate=Approval(by="lead", needed=2, standing=True))
    api, other = api_of(store), api_of(store, "otto")
    sent = {"request": item.id, "digest": item.digest, "scope": "tenant", "uses": 3}
    grant = api.send("/grants", sent).json()
    assert grant["giver_count"] == 1
    path = f"/grants/{grant['id']}/signatures"
    tag = {"if-match": grant["etag"]}
    assert problem(other.send(path, None, key=None, **tag)) == (400, "key-missing")
    assert problem(other.send(path, None)) == (428, "precondition-needed")
    assert problem(other.send(path, None, **{"if-match": 'W/"older"'})) == (412, "stale")
    assert problem(api.send(path, None, **tag)) == (409, "refused")  # each person counts once
    signed = other.send(path, None, key="s", **tag)
    assert signed.status_code == 200, signed.text
    view = signed.json()
    assert (view["giver_count"], [each["person"]["id"] for each in view["givers"]]) == (2, ["rita", "otto"])
    assert view["givers"][1]["channel"] == "api" and view["etag"] != grant["etag"]
    assert signed.headers["etag"] == view["etag"] == other.read(f"/grants/{grant['id']}")["etag"]
    # The answer was lost: under the same key it comes again, though the tag is an old one by now.
    assert other.send(path, None, key="s", **tag).json() == view and len(store.grants()[0].givers) == 2
    assert problem(other.send("/grants/grant_x/signatures", None, **tag)) == (404, "not-found")
    assert problem(other.send(path, None, **{"if-match": "*"})) == (428, "precondition-needed")
    store.revoke(grant["id"], by="rita")
    revoked = {"if-match": other.read(f"/grants/{grant['id']}")["etag"]}
    assert problem(api_of(store, "robot").send(path, None, **revoked)) == (409, "refused")


# Runs


def test_runs_are_listed_newest_first_and_shown(place: Place) -> None:
    store = place.open()
    agent = desk(store)
    runs = [agent.invoke(f"Refund order {number}", thread_id=f"t{number}").checkpoint for number in range(3)]
    api = api_of(store, agents=agent)
    assert ids(api.pages("/runs", limit=1)) == [each.run_id for each in reversed(runs)]
    assert ids(api.pages("/runs", thread="t1")) == [runs[1].run_id]
    assert api.pages("/runs", status="completed") == [] and len(api.pages("/runs", status="suspended")) == 3
    row = api.read("/runs", limit=1)["items"][0]
    assert row["waits_for"] == [runs[2].pending[0].id] and row["held"] is False
    full = api.read(f"/runs/{runs[0].run_id}")
    assert (full["checkpoint_id"], full["messages"], full["can_cancel"]) == (runs[0].id, 2, True)
    timeline = api.read(f"/runs/{runs[0].run_id}/timeline", limit=2)
    assert [each["type"] for each in timeline["entries"]] == ["checkpoint", "suspended"] and timeline["dropped"] > 0
    last = api.read(f"/runs/{runs[0].run_id}/messages", limit=1)
    assert (last["items"][0]["role"], last["total"], last["before"]) == ("assistant", 2, 1)
    assert last["items"][0]["tool_calls"][0]["arguments"] == '{"order": 0}'
    before = api.read(f"/runs/{runs[0].run_id}/messages", before=1)
    assert (before["items"][0]["text"], before["before"]) == ("Refund order 0", None)
    assert problem(api.get(f"{API}/runs/run_x")) == (404, "not-found")
    assert problem(api.get(f"{API}/runs/run_x/timeline")) == (404, "not-found")


def test_arguments_in_a_conversation_are_hidden_where_it_is_not_known_which_are_secret() -> None:
    store = MemoryStore()
    checkpoint = desk(store, redact=["note"]).invoke("Refund order 4").checkpoint
    path = f"/runs/{checkpoint.run_id}/messages"
    (_, said) = api_of(store).read(path)["items"]
    assert said["tool_calls"][0]["arguments"] == '{"order": "[redacted]"}'
    (_, said) = api_of(store, agents=desk(store, redact=["note"])).read(path)["items"]
    assert said["tool_calls"][0]["arguments"] == '{"order": 4}'


def test_a_message_is_refused_where_the_model_has_as_many_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 2)
    store = MemoryStore()
    checkpoint = desk(store).invoke("Refund order 4", requester="rita").checkpoint
    api = api_of(store)
    path = f"/runs/{checkpoint.run_id}/messages"
    assert api.send(path, {"text": "More."}).status_code == 200
    refused = api.send(path, {"text": "More."})
    assert problem(refused) == (409, "refused")
    assert "has 1 messages that its model has not read yet" in refused.json()["detail"]


def test_a_run_is_started_once_and_cancelled(place: Place) -> None:
    store = place.open()
    api = api_of(store, agents=desk(store))
    sent = {"agent": "desk", "input": "Refund order 9", "thread": "t"}

    async def scene() -> tuple[Any, Any]:
        transport = httpx2.ASGITransport(app=api.inbox)
        async with httpx2.AsyncClient(transport=transport, base_url="https://inbox.example") as client:
            headers = {**bearer("robot"), "idempotency-key": "start"}
            first = await client.post(f"{API}/runs", json=sent, headers=headers)
            for task in list(api.inbox.site.kept(Started).tasks):
                await task
            again = await client.post(f"{API}/runs", json=sent, headers=headers)
            return first, again

    first, again = run(scene())
    assert first.status_code == 202 and first.headers["location"] == f"{API}/runs/{first.json()['id']}"
    assert again.json()["id"] == first.json()["id"] and again.json()["status"] == "suspended"
    assert again.json()["requester"] == {"id": "robot", "name": None, "kind": "service", "roles": []}
    assert len(store.branches()) == 1
    assert problem(api.send("/runs", {**sent, "agent": "none"})) == (422, "invalid")
    assert problem(api.send("/runs", sent)) == (409, "refused")  # the thread is busy
    run_id = first.json()["id"]
    ended = api.send(f"/runs/{run_id}/cancel", {"reason": "not needed"}, key="end")
    assert ended.status_code == 200 and ended.json()["status"] == "cancelled"
    assert api.send(f"/runs/{run_id}/cancel", {"reason": "not needed"}, key="end").json() == ended.json()
    assert problem(api.send(f"/runs/{run_id}/cancel", {})) == (409, "refused")
    (record,) = store.audit()
    assert (record.kind, record.reason, record.by.id if record.by else "") == ("cancel", "not needed", "rita")


def test_a_run_that_fails_after_its_start_is_there_and_the_log_has_no_text(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()

    def broken(request: Any) -> str:
        raise OSError("secret address")

    agent: Agent[Any, str] = Agent(name="desk", model=ScriptedModel.by_turn([broken]), store=store)
    api = api_of(store, agents=agent)

    async def scene() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=api.inbox)
        async with httpx2.AsyncClient(transport=transport, base_url="https://inbox.example") as client:
            headers = {**bearer("rita"), "idempotency-key": "start"}
            answer = await client.post(f"{API}/runs", json={"agent": "desk", "input": "Hello"}, headers=headers)
            for task in list(api.inbox.site.kept(Started).tasks):
                await task
            return answer

    started = run(scene())
    assert started.status_code == 202
    assert api.read(f"/runs/{started.json()['id']}")["status"] == "failed"
    assert "stopped on" in caplog.text and "secret" not in caplog.text


def test_a_run_of_an_agent_that_is_not_here_cannot_be_ended() -> None:
    store = MemoryStore()
    item = asked(store)
    api = api_of(store)
    run_id = store.request(item.id).run_id
    assert problem(api.send(f"/runs/{run_id}/cancel", {})) == (409, "refused")
    assert api.read(f"/runs/{run_id}")["can_cancel"] is False


# Who I am


def test_me_says_who_i_am_and_what_i_may() -> None:
    store = MemoryStore()
    api = api_of(store, tokens=ByToken(tenants={"otto": "acme"}))
    mine = api.read("/me")
    assert mine["principal"] == {"id": "rita", "name": "Rita", "kind": "human", "roles": ["lead"]}
    assert mine["scopes"] == ["read", "decide", "grant", "audit", "start", "cancel", "operate", "send"]
    assert (mine["tenant"], mine["via"], mine["csrf"]) == ("", "token", None)
    assert api.as_("otto").read("/me")["tenant"] == "acme"
