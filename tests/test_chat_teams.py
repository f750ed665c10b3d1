"""Microsoft Teams as a channel: cards for each person, forms in dialogs, old clients, places, and what is special there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from chat_scenes import OTTO, RITA, approvals_of, asked, desk, emptied, with_people
from hypothesis import given, settings
from hypothesis import strategies as st
from ports import HeldPort

from phronomy import Agent, Approval, ConfigurationError, MemoryStore, PendingApproval, tool
from phronomy.chat import (
    Button,
    Card,
    ChannelError,
    ChannelRefused,
    ChatApprovals,
    Click,
    Field,
    Form,
    HttpRequest,
    Line,
    RateLimited,
    Response,
    Said,
    Submitted,
    Viewed,
)
from phronomy.chat.teams import Cloud, Teams
from phronomy.chat.teams.activities import thread_of
from phronomy.chat.teams.adaptive_cards import LARGEST, card_of, message_of
from phronomy.chat.teams.connector import Connector
from phronomy.people import Person, StoreDirectory
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import Clock, FakeTeams, Shown
from phronomy.testing.chat.loopback import Loopback
from phronomy.testing.chat.teams import APP_ID, APP_PASSWORD, TENANT
from phronomy.testing.chat.teams.client import acted_on, check_activity, check_card

STRANGER = "U000STRANGER"


@pytest.fixture(params=["channel", "groupChat"])
def teams(request: pytest.FixtureRequest) -> Iterator[FakeTeams]:
    with FakeTeams(Clock(), conversation_type=request.param) as fake:
        yield fake


class Scene:
    """A request that waits and is posted."""

    def __init__(self, teams: FakeTeams, gate: Any = True) -> None:
        self.teams = teams
        self.store: Store = with_people(MemoryStore(clock=teams.clock), teams)
        self.approvals: ChatApprovals = approvals_of(self.store, teams)
        self.item: PendingApproval = asked(self.approvals, self.store, gate=gate)
        self.send()

    def send(self) -> None:
        emptied(self.approvals, self.teams.clock)

    @property
    def shown(self) -> Shown:
        [found] = self.teams.messages()
        return found

    @property
    def trail(self) -> list[tuple[str, str, bool]]:
        found = self.store.audit(pending_id=self.item.id)
        return [(each.by.id if each.by else "", each.kind, each.refused) for each in found]


# A card for each person


def test_each_person_sees_the_buttons_that_count_for_them_and_the_message_has_all(teams: FakeTeams) -> None:
    scene = Scene(teams, Approval(needed=2))
    teams.person(STRANGER)
    every = {"approve", "edit", "respond", "reject", "reason"}
    assert scene.shown.buttons.keys() == every
    assert teams.view(RITA, scene.shown).buttons.keys() == every
    assert teams.view(STRANGER, scene.shown).buttons == {}
    teams.click(scene.shown, "approve", RITA)
    scene.send()
    # She has voted, and he has not.
    assert teams.view(RITA, scene.shown).buttons == {} and "1 of 2" in teams.view(RITA, scene.shown).text
    assert teams.view(OTTO, scene.shown).buttons.keys() == every
    teams.click(scene.shown, "approve", OTTO)
    scene.send()
    assert scene.shown.buttons == {} and "approved by Rita and Otto" in teams.view(STRANGER, scene.shown).text
    # To look is no attempt.
    assert scene.trail == [("rita", "approve", False), ("otto", "approve", False)]


def test_whoever_clicks_sees_the_outcome_in_the_answer_before_the_message_changes(teams: FakeTeams) -> None:
    scene = Scene(teams)
    sent = teams.sign(scene.shown, "approve", RITA)
    response = scene.approvals.handle("POST", sent.path, sent.headers, sent.body)
    answer = json.loads(response.body)
    assert (answer["statusCode"], answer["type"]) == (200, "application/vnd.microsoft.card.adaptive")
    assert "approved by Rita" in json.dumps(answer["value"]) and "refresh" not in answer["value"]
    assert scene.shown.edits == 0
    teams.clock.move(2)
    assert response.after is not None
    response.after()
    assert scene.shown.edits == 1


def test_a_refresh_edits_nothing_and_a_message_that_nobody_can_decide_asks_for_none(teams: FakeTeams) -> None:
    scene = Scene(teams)
    before = (len(teams.calls), rows(scene.store))
    for _ in range(20):
        assert teams.refresh(RITA, scene.shown).status == 200
        teams.clock.move(61)
    assert (len(teams.calls), rows(scene.store)) == before and scene.approvals.outbox.run_once().sent == 0
    assert teams.view(RITA, scene.shown).buttons == scene.shown.buttons
    teams.click(scene.shown, "approve", RITA)
    scene.send()
    [activity] = [found for found in teams._service.messages.values() if found.get("attachments")]
    assert "refresh" not in activity["attachments"][0]["content"]


def rows(store: Store) -> list[str]:
    """All small documents of chats, with their versions."""
    kinds = ("token", "chat-post", "chat-todo", "chat-lane")
    return [f"{each.kind}/{each.key}/{each.version}" for kind in kinds for each in store.select_documents(kind)]


def test_a_client_asks_again_after_a_minute_and_none_does_in_a_large_chat(teams: FakeTeams) -> None:
    scene = Scene(teams, Approval(by="lead"))
    assert teams.view(RITA, scene.shown).buttons.keys() == scene.shown.buttons.keys()
    StoreDirectory(scene.store).add(
        Person(id="rita", name="Rita", roles=("clerk",), aliases=(teams.alias(RITA),)), replace=True
    )
    teams.clock.move(60)
    assert teams.view(RITA, scene.shown).buttons != {}
    teams.clock.move(1)
    assert teams.view(RITA, scene.shown).buttons == {}
    # There she sees the buttons of all, and is refused in private.
    teams.is_large = True
    teams.channel.update(scene.shown.ref, scene.approvals._card(post_of(scene)))
    teams.clock.move(61)
    assert teams.view(RITA, scene.shown).buttons.keys() == scene.shown.buttons.keys() != set()
    teams.click(scene.shown, "approve", RITA)
    assert "lead" in teams.told(RITA)[0] and scene.trail == [("rita", "approve", True)]


def post_of(scene: Scene) -> Any:
    [(_, post)] = scene.approvals._posts.of(scene.item.id)
    return post


def test_the_fake_fails_a_test_in_which_a_refresh_edits_a_message(teams: FakeTeams) -> None:
    scene = Scene(teams)
    channel = teams.channel

    class Edits:
        def handle(self, method: str, path: str, headers: Any, body: bytes) -> Response:
            channel.update(scene.shown.ref, Card(title="t", state="over", status="s"))
            return Response()

    shown = scene.shown
    teams._handler = Edits()
    with pytest.raises(AssertionError, match="refresh loop"):
        teams.refresh(RITA, shown)


def test_what_a_client_asks_by_itself_decides_nothing_whatever_it_asks_for(teams: FakeTeams) -> None:
    scene = Scene(teams)
    data = {"phronomy": scene.shown.buttons["approve"]}
    for verb, trigger in (("phronomy:approve", "automatic"), ("phronomy:view", "manual")):
        sent = teams.signed(teams.action(scene.shown, RITA, verb, data, trigger))
        assert json.loads(teams.deliver(sent).body)["type"] == "application/vnd.microsoft.card.adaptive"
    assert scene.trail == [] and scene.store.request(scene.item.id).status == "pending"


def test_a_message_that_is_not_known_stays_as_it_is(teams: FakeTeams) -> None:
    scene = Scene(teams)
    shown = scene.shown
    data = shown.buttons["approve"]
    others = (
        approvals_of(scene.store, teams, keys={"other": b"o" * 32}),
        approvals_of(with_people(MemoryStore(clock=teams.clock), teams), teams),
    )
    for _ in others:
        activity = teams.action(shown, RITA, "phronomy:view", {"phronomy": data}, "automatic")
        assert json.loads(teams.deliver(teams.signed(activity)).body)["statusCode"] == 400
    approvals_of(scene.store, teams)
    for data in ("", "a", "a" + "!" * 44, "x" * 200):
        activity = teams.action(shown, RITA, "phronomy:view", {"phronomy": data}, "automatic")
        assert json.loads(teams.deliver(teams.signed(activity)).body)["statusCode"] == 400


@pytest.mark.parametrize("data", [None, [], "text", {}, {"phronomy": None}, {"phronomy": 7}, {"other": "x"}])
def test_a_button_of_another_program_is_answered_and_decides_nothing(teams: FakeTeams, data: Any) -> None:
    scene = Scene(teams)
    for trigger in ("manual", "automatic"):
        response = teams.deliver(teams.signed(teams.action(scene.shown, RITA, "other", data, trigger)))
        assert response.status == 200 and json.loads(response.body)["statusCode"] == 400
    for name in ("task/fetch", "task/submit", "composeExtension/query"):
        activity = teams.activity("invoke", RITA, scene.shown, name=name, value={"data": data})
        assert teams.deliver(teams.signed(activity)) == Response()
    assert scene.trail == []


# Old clients


def test_a_client_that_knows_no_universal_actions_sends_a_message_and_is_told_in_its_own_chat(teams: FakeTeams) -> None:
    scene = Scene(teams)
    shown = scene.shown
    response = teams.click(shown, "approve", RITA, client="old")
    assert (response.status, response.body) == (200, b"") and teams.told(RITA) == []
    teams.click(shown, "reject", OTTO, client="old")
    teams.click(shown, "approve", STRANGER, client="old")
    [told] = teams.told(OTTO)
    assert "Somebody was first: approved by Rita" in told and "nobody is known here" in teams.told(STRANGER)[0]
    scene.send()
    assert scene.shown.buttons == {} and "approved by Rita" in scene.shown.text
    # Nobody else reads it: it is not in the place.
    assert teams.conversation_id not in {where.partition(";")[0] for where, _ in teams.texts()}


def test_in_a_chat_with_one_person_they_are_told_there() -> None:
    with FakeTeams(Clock()) as fake:
        fake.conversation_type = "personal"
        store = with_people(MemoryStore(clock=fake.clock), fake)
        approvals_of(store, fake)
        shown = Shown(ref=f"{fake.conversation_id}/1", text="", buttons={"approve": "a" * 45})
        fake.click(shown, "approve", RITA, client="old")
        assert [where for where, _ in fake.texts()] == [fake.conversation_id]
        assert [path for _, path, _ in fake.calls if path.endswith("/conversations")] == []


def test_who_cannot_be_told_sees_that_nothing_happens(teams: FakeTeams) -> None:
    scene = Scene(teams)
    teams.fail(403)
    assert teams.click(scene.shown, "approve", STRANGER, client="old").status == 200
    assert teams.told(STRANGER) == [] and scene.trail[0][2]


# Forms


def test_a_dialog_shows_errors_beside_what_was_typed_and_outlives_an_edit_of_the_message(teams: FakeTeams) -> None:
    scene = Scene(teams, Approval(needed=2))
    teams.click(scene.shown, "reason", RITA)
    assert teams.form(RITA) == {"reason": ""}
    # Somebody else votes meanwhile: the message is edited, and the dialog is still there.
    teams.click(scene.shown, "approve", OTTO)
    scene.send()
    assert scene.shown.edits == 1 and teams.form(RITA) == {"reason": ""}
    # The client says itself that something is missing. So does the server, if the client does not.
    assert teams.submit(RITA, {"reason": " "}) == {"reason": "This is needed."}
    assert teams.submit_anyway(RITA, {"reason": ""}) == {"reason": "Say why."}
    assert teams.submit(RITA, {"reason": "too much"}) == {} and teams.form(RITA) is None
    decision = scene.store.request(scene.item.id).decision
    assert decision is not None and (decision.kind, decision.reason) == ("reject", "too much")
    assert len(teams.messages()) == 1  # the dialog was opened on it, so it is not taken for another


def test_an_edit_keeps_lines_choices_and_what_nobody_has_touched(teams: FakeTeams) -> None:
    store = with_people(MemoryStore(clock=teams.clock), teams)
    approvals = approvals_of(store, teams)

    @tool(requires_approval=True)
    def send(text: str, express: bool, many: list[int]) -> str:
        """Send a text."""
        return text

    given_call = call("send", {"text": "one\ntwo", "express": False, "many": [1, 2]})
    agent = Agent(
        name="desk", model=ScriptedModel([given_call, "Done."]), tools=[send], store=store, announcements=[approvals]
    )
    item = agent.invoke("go").checkpoint.pending[0]
    emptied(approvals, teams.clock)
    [shown] = teams.messages()
    teams.click(shown, "edit", RITA)
    assert teams.form(RITA) == {"arg:text": "one\ntwo", "arg:express": "false", "arg:many": "[1,2]"}
    wrong = teams.submit(RITA, {"arg:many": "[1,", "arg:express": "true"})
    assert wrong == {"arg:many": "This is not valid JSON, or not a number."}
    assert teams.form(RITA) == {"arg:text": "one\ntwo", "arg:express": "true", "arg:many": "[1,"}
    # Some clients end lines as Windows does.
    assert teams.submit(RITA, {"arg:many": "[3]", "arg:text": "one\r\ntwo"}) == {}
    decision = store.request(item.id).decision
    assert decision is not None and decision.args == {"text": "one\ntwo", "express": True, "many": [3]}


def test_a_dialog_that_comes_too_late_says_who_was_first(teams: FakeTeams) -> None:
    scene = Scene(teams)
    teams.click(scene.shown, "reason", RITA)
    teams.click(scene.shown, "approve", OTTO)
    assert teams.submit(RITA, {"reason": "no"}) == {} and teams.form(RITA) is None
    assert "Somebody was first: approved by Otto" in teams.told(RITA)[0]


def test_a_form_that_was_changed_on_its_way_is_answered_without_it(teams: FakeTeams) -> None:
    scene = Scene(teams)
    data = scene.shown.buttons["reason"]
    for form in (None, [], "x", {"title": "t"}, {"title": "t", "fields": [7]}, {"fields": [{"name": "reason"}]}):
        value = {"data": {"phronomy": data, "phronomy-form": form, "reason": ""}}
        sent = teams.signed(teams.activity("invoke", RITA, scene.shown, name="task/submit", value=value))
        assert json.loads(teams.deliver(sent).body)["task"]["type"] in ("message", "continue")
    assert scene.trail == []


def test_what_is_no_text_in_utf_8_comes_back_as_far_as_it_is_one(teams: FakeTeams) -> None:
    scene = Scene(teams)
    value = {"data": {"phronomy": scene.shown.buttons["reason"], "reason": "a\ud800b"}}
    activity = teams.activity("invoke", RITA, scene.shown, name="task/submit", value=value)
    assert teams.deliver(teams.signed(activity)).status == 200
    decision = scene.store.request(scene.item.id).decision
    assert decision is not None and decision.reason == "a\ufffdb"
    said = {**teams.activity("message", RITA), "text": "a\ud800b"}
    found = received(teams, teams.signed(said))
    assert isinstance(found, Said) and found.text == "a\ufffdb"


def test_a_client_without_dialogs_is_told(teams: FakeTeams) -> None:
    scene = Scene(teams)
    data = {"phronomy": scene.shown.buttons["reason"]}
    answer = json.loads(teams.deliver(teams.signed(teams.action(scene.shown, RITA, "x", data))).body)
    assert "shows no forms" in answer["value"]
    teams.click(scene.shown, "reason", RITA, client="old")
    assert "shows no forms" in teams.told(RITA)[0]


def test_the_largest_form_fits_into_a_dialog() -> None:
    limits = Teams.form_limits
    fields = tuple(
        Field(name=f"arg:{n}", label="l" * 200, value="\u6f22" * limits.value, hint="h" * 210, kind="lines")
        for n in range(limits.fields)
    )
    form = Form(title="Edit and approve", submit="Approve", fields=fields, data="e" * 45)
    click = Click(alias="a", delivery="d", data="e" * 45, reply={"kind": "dialog"})
    answer = teams_of().open_form(click, form)
    assert len(answer.body.decode().encode("utf-16-le")) < 102_400
    check_card(json.loads(answer.body)["task"]["value"]["card"]["content"])


# Places


def test_the_bot_says_which_place_a_conversation_is(teams: FakeTeams) -> None:
    scene = Scene(teams)
    in_thread = teams.activity("message", RITA, scene.shown)["conversation"]
    for sent in (teams.install(RITA), teams.say("Place", RITA), teams.say("place", RITA, mention=False)):
        assert teams.deliver(sent).status == 200
    activity = {**teams.activity("message", RITA), "text": "place", "conversation": in_thread}
    teams.deliver(teams.signed(activity))
    assert [text for _, text in teams.texts()] == [
        f"Approvals can be asked for here. This place is teams:{teams.conversation_id}"
    ] * 4


def test_the_bot_says_which_service_is_the_right_one_if_it_uses_another(teams: FakeTeams) -> None:
    Scene(teams)
    activity = {**teams.activity("message", RITA), "text": "place", "serviceUrl": f"{teams.base_url}/emea/"}
    teams.deliver(teams.signed(activity, claims={"serviceurl": f"{teams.base_url}/emea"}))
    [(where, text)] = teams.texts()
    assert where == teams.conversation_id and text.endswith(f"The service_url for it is {teams.base_url}/emea/")


def test_the_bot_says_nothing_when_somebody_else_is_added_and_no_error_if_it_cannot_speak(teams: FakeTeams) -> None:
    Scene(teams)
    update = {**teams.activity("conversationUpdate", RITA), "membersAdded": [{"id": "29:1"}, None]}
    assert teams.deliver(teams.signed(update)) == Response()
    teams.fail("refused")
    assert teams.deliver(teams.install(RITA)).status == 200
    assert teams.texts() == []


def test_a_message_to_the_bot_is_said_without_the_mention(teams: FakeTeams) -> None:
    activity = json.loads(teams.say("what about 7 < 8?", RITA).body)
    # Somebody else is mentioned too, and that is part of the text.
    activity["entities"] += [{"type": "mention", "text": "7", "mentioned": {"id": "29:x"}}, {"type": "clientInfo"}, 7]
    found = received(teams, teams.signed(activity))
    assert isinstance(found, Said)
    assert (found.alias, found.text) == (teams.alias(RITA), "what about 7 < 8?")
    assert found.thread == found.to == teams.conversation_id
    assert teams.channel.acknowledge(found, None) == Response()
    response = teams.channel.acknowledge(found, "Only for you.")
    assert response.after is not None
    response.after()
    assert teams.told(RITA) == ["Only for you."]


@pytest.mark.parametrize(
    "more",
    [
        {"text": ""},
        {"text": " \n"},
        {"text": None},
        {"text": "x" * 100_001},
        {"text": "hi", "from": {"id": "28:other", "name": "a bot"}},
    ],
)
def test_a_message_without_a_text_or_of_another_bot_is_nothing(teams: FakeTeams, more: dict[str, Any]) -> None:
    assert received(teams, teams.signed({**teams.activity("message", RITA), **more})) == Response()


@pytest.mark.parametrize("char", ["n", "\n", '"', "ü", "\N{GRINNING FACE}"])
def test_the_longest_text_fits_whatever_its_characters_are(teams: FakeTeams, char: str) -> None:
    text = char * Teams.say_limit
    teams_channel(teams).say(teams.conversation_id, text, key="k")
    assert teams.texts() == [(teams.conversation_id, text)]
    check_activity(teams.calls[-1][2], LARGEST)


def test_in_a_channel_each_thread_is_a_conversation_and_a_chat_is_one(teams: FakeTeams) -> None:
    first, other = teams.write(RITA, "One"), teams.write(OTTO, "Two")
    again = teams.write(OTTO, "Three", thread=first.thread)
    assert first.thread == again.thread and (first.thread == other.thread) == (teams.conversation_type == "groupChat")
    for written, text in ((first, "One"), (other, "Two"), (again, "Three")):
        found = received(teams, written.sent)
        assert isinstance(found, Said) and (found.text, found.thread, found.to) == (
            text,
            written.thread,
            written.thread,
        )
        teams_channel(teams).say(found.to, f"I was told: {text}", key="k")
    assert [shown.text for shown in teams.conversation(first.thread)][-1] == "I was told: Three"


def test_a_text_is_said_as_it_is_written(teams: FakeTeams) -> None:
    channel = teams_channel(teams)
    ref = channel.say(teams.conversation_id, "<at>Rita</at> **b** [x](https://evil.example)", key="k")
    assert ref.startswith(f"{teams.conversation_id}/")
    assert teams.calls[-1][2] == {
        "type": "message",
        "text": "<at>Rita</at> **b** [x](https://evil.example)",
        "textFormat": "plain",
    }
    assert teams.pings() == []


@pytest.mark.parametrize(
    ("ref", "thread"),
    [
        ("19:a@thread.tacv2/17", "19:a@thread.tacv2;messageid=17"),
        ("19:a@thread.skype/17", "19:a@thread.skype;messageid=17"),
        ("19:a@thread.tacv2;messageid=16/17", "19:a@thread.tacv2;messageid=16"),
        ("19:a@thread.v2/17", "19:a@thread.v2"),
        ("a:1x/17", "a:1x"),
    ],
)
def test_an_answer_to_a_message_stands_below_it(ref: str, thread: str) -> None:
    assert thread_of(ref) == thread


def test_a_message_in_a_thread_is_known_by_the_same_reference_when_it_is_clicked(teams: FakeTeams) -> None:
    place = f"{teams.conversation_id};messageid=1700000000001"
    channel = teams_channel(teams)
    ref = channel.post(place, card(buttons=BUTTONS), key="k")
    shown = Shown(ref=ref, text="", buttons={"approve": "a" * 45, "reason": "n" * 45})
    for action in ("approve", "reason"):
        found = received(teams, teams.sign(shown, action, RITA))  # type: ignore[arg-type]
        assert isinstance(found, Click) and found.ref == ref
    channel.remind(ref, card())
    assert teams.texts()[0][0] == place


# Sending


def test_a_token_is_kept_until_it_is_withdrawn(teams: FakeTeams) -> None:
    channel = teams_channel(teams)
    ref = channel.post(teams.conversation_id, card(), key="k")
    channel.update(ref, card())
    assert teams.tokens_given == 1
    teams.withdraw_tokens()
    channel.update(ref, card())
    assert teams.tokens_given == 2
    teams._service.tokens.clear()
    teams.fail(401, 401)
    with pytest.raises(ChannelRefused, match="Other"):
        channel.update(ref, card())


def test_a_token_is_renewed_five_minutes_before_its_end(teams: FakeTeams, monkeypatch: pytest.MonkeyPatch) -> None:
    from phronomy.chat.teams import connector

    time = Clock(1_000.0)
    monkeypatch.setattr(connector, "monotonic", time)
    channel = teams_channel(teams)
    for moved, count in ((0, 1), (3_298, 1), (2, 2)):
        time.move(moved)
        channel.say(teams.conversation_id, "hi", key="k")
        assert teams.tokens_given == count


def test_a_wrong_secret_is_refused_and_not_quoted(teams: FakeTeams) -> None:
    cloud = Cloud(login_url=teams.base_url, metadata_url=teams.metadata_url)
    wrong = teams_of(app_password="xyzzy", service_url=teams.service_url, cloud=cloud)
    with pytest.raises(ChannelRefused, match="invalid_client") as error:
        wrong.say(teams.conversation_id, "hi", key="k")
    assert "xyzzy" not in str(error.value) and "xyzzy" not in repr(wrong) + repr(vars(wrong))


@pytest.mark.parametrize(
    ("trouble", "kind", "gone"),
    [
        *((each, ChannelError, None) for each in ("down", "dropped", 408, 412, 500, 502, 503, 504, 302, 204)),
        *((each, ChannelRefused, False) for each in ("refused", 400, 403, 405)),
        *((each, ChannelRefused, True) for each in ("gone", 404)),
    ],
)
def test_errors_are_told_apart(teams: FakeTeams, trouble: Any, kind: type[ChannelError], gone: bool | None) -> None:
    channel = teams_channel(teams)
    ref = channel.post(teams.conversation_id, card(), key="k")
    before = len(teams.calls)
    teams.fail(trouble)
    if trouble == 204:  # an edit needs no answer
        channel.update(ref, card())
    else:
        with pytest.raises(kind) as error:
            channel.update(ref, card())
        assert type(error.value) is kind and getattr(error.value, "gone", None) is gone
    # One call each: the outbox tries again, and knows what it tries.
    assert len(teams.calls) == before + 1
    if gone is not None:  # a conversation that is not there is no message that somebody has deleted
        teams.fail(trouble)
        with pytest.raises(ChannelRefused) as refused:
            channel.post(teams.conversation_id, card(), key="k")
        assert not refused.value.gone


def test_a_message_that_teams_does_not_name_is_not_sent_again_and_is_known_once_it_is_clicked(teams: FakeTeams) -> None:
    store = with_people(MemoryStore(clock=teams.clock), teams)
    approvals = approvals_of(store, teams)
    teams.hides_ids = True
    asked(approvals, store)
    emptied(approvals, teams.clock)
    teams.hides_ids = False
    [shown] = teams.messages()
    teams.click(shown, "approve", RITA)
    emptied(approvals, teams.clock)
    [shown] = teams.messages()
    assert shown.buttons == {} and shown.edits == 1


@pytest.mark.parametrize(
    "answer", [{"id": "x" * 300_000}, {"id": float("nan")}, [], "text", None, {"error": "<script>"}]
)
def test_an_answer_that_is_none_of_teams_is_read_no_further(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = Loopback(lambda method, path, headers, body: (400 if "conversations" in path else 200, {}, answer))
    try:
        connector = Connector(
            app_id=APP_ID,
            app_password="p",
            tenant_id=TENANT,
            service_url=f"{server.url}/",
            cloud=Cloud(login_url=server.url),
        )
        with pytest.raises(ChannelError) as no_token:
            connector.post("19:a@thread.v2", {})
        connector._token = ("t", float("inf"))
        with pytest.raises(ChannelError) as refused:
            connector.post("19:a@thread.v2", {})
    finally:
        server.close()
    for error in (no_token, refused):
        assert len(str(error.value)) < 80 and "script" not in str(error.value)
    assert caplog.text == ""


def test_nobody_at_the_address_is_an_error_of_the_platform() -> None:
    port = HeldPort()
    cloud = Cloud(login_url=f"http://127.0.0.1:{port.number}")
    connector = Connector(app_id=APP_ID, app_password="p", tenant_id=TENANT, service_url="https://x/", cloud=cloud)
    with port, pytest.raises(ChannelError, match="ConnectError") as error:
        connector.post("19:a@thread.v2", {})
    assert type(error.value) is ChannelError and error.value.__cause__ is None


def test_too_many_messages_wait_as_long_as_teams_says_or_half_a_minute(teams: FakeTeams) -> None:
    channel = teams_channel(teams)
    for trouble, least, most in (("limited", 30, 30), ("silent", 30, 40)):
        teams.fail(trouble)  # type: ignore[arg-type]
        with pytest.raises(RateLimited) as limited:
            channel.say(teams.conversation_id, "hi", key="k")
        assert least <= limited.value.seconds <= most


def test_the_pace_keeps_to_all_limits_for_an_hour() -> None:
    with FakeTeams(Clock(), rates=True) as fake:
        channel = teams_channel(fake)
        pace = channel.pace("post", fake.conversation_id)
        thread = f"{fake.conversation_id};messageid=1"
        assert [channel.pace(work, thread) for work in ("update", "remind")] == [pace, pace]
        for _ in range(1_900):
            fake.clock.move(pace.seconds)
            fake._service._take(thread)
        with pytest.raises(RateLimited):  # one more within this hour is too much
            channel.say(fake.conversation_id, "hi", key="k")
        fake.clock.move(3_600)
        for _ in range(7):
            channel.say(fake.conversation_id, "hi", key="k")
        with pytest.raises(RateLimited):  # and so is the eighth within a second
            channel.say(fake.conversation_id, "hi", key="k")


def test_nothing_is_sent_to_what_is_no_conversation(teams: FakeTeams) -> None:
    channel = teams_channel(teams)
    for place in ("", "../../v3/attachments", "19:a b", "x" * 300, "19:a/activities/1?"):
        with pytest.raises(ChannelRefused):
            channel.post(place, card(), key="k")
    assert teams.calls == []
    with pytest.raises(ChannelRefused, match="BotNotInConversationRoster"):
        channel.post("19:other@thread.tacv2", card(), key="k")


# Showing


def test_a_request_that_is_long_in_every_way_fits_into_a_message(teams: FakeTeams) -> None:
    store = with_people(MemoryStore(clock=teams.clock), teams)
    approvals = approvals_of(store, teams)
    names = [f"parameter_{number}_{'x' * 60}" for number in range(60)]
    space: dict[str, Any] = {}
    exec(f"def many({', '.join(f'{name}: str' for name in names)}) -> str: ...", space)
    gate = Approval(title="\u6f22" * 140, context="<" * 5_000, by=[f"role-{'y' * 50}-{n}" for n in range(40)])
    many = tool(requires_approval=gate)(space["many"])
    model = ScriptedModel([call("many", dict.fromkeys(names, "\u6f22" * 290)), "Done."])
    agent = Agent(name="a" * 200, model=model, tools=[many], store=store, announcements=[approvals])
    agent.invoke("go", requester="r" * 500)
    emptied(approvals, teams.clock)
    [shown] = teams.messages()
    assert (
        "more: " in shown.text
        and "characters, SHA-256 " in shown.text
        and {"respond", "reject", "reason"} == shown.buttons.keys()
    )
    [activity] = teams._service.messages.values()
    assert len(json.dumps(activity, ensure_ascii=False).encode()) < LARGEST and teams.pings() == []


def test_where_a_message_is_too_large_it_says_so_and_keeps_its_buttons(teams: FakeTeams) -> None:
    channel = teams_channel(teams)
    large = card(
        lines=tuple(Line(name=f"n{n}", value="\u6f22" * 300) for n in range(60)),
        buttons=BUTTONS,
        link="https://i.example/1",
        approves_unseen=True,
    )
    assert '"a' + "x" * 44 not in json.dumps(message_of(replace(large, approves_unseen=False)))
    content = json.dumps(message_of(large))
    assert "too long for Teams" in content and "see the inbox" in content and len(content) < 6_000
    assert content.count('"a' + "x" * 44) == 3  # the button, its fallback, and the refresh
    # Teams may take less than it says.
    teams.largest = 9_000
    before = len(teams.calls)
    middle = card(lines=(Line(name="n", value="v" * 5_000),), buttons=BUTTONS, approves_unseen=True)
    ref = channel.post(teams.conversation_id, middle, key="k")
    channel.update(ref, middle)
    assert [method for method, _, _ in teams.calls[before:]] == ["POST", "POST", "PUT", "PUT"]
    shown = next(each for each in teams.messages() if each.ref == ref)
    assert "too long for Teams" in shown.text and shown.buttons.keys() == {"approve"}
    teams.largest = 10
    with pytest.raises(ChannelError):
        channel.update(ref, middle)


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=400))
def test_no_text_is_acted_on(text: str) -> None:
    shown = card(
        title=text[:100] or "t",
        status=text or "s",
        lines=(Line(name=text[:80] or "n", value=text or "v"),),
        notes=(text or "n",),
    )
    message = message_of(shown)
    check_activity(message)
    assert [*acted_on(message)] == [] and '"TextBlock"' not in json.dumps(card_of(shown, None))


# Settings


BUTTONS = (Button(action="approve", label="Approve", data="a" + "x" * 44),)


def card(**changes: Any) -> Card:
    return Card(**{"title": "t", "state": "waits", "status": "s", "pending_id": "p", "mark": "m", **changes})


def teams_of(**options: Any) -> Teams:
    return Teams(**{"app_id": APP_ID, "app_password": APP_PASSWORD, "tenant_id": TENANT, **options})


def teams_channel(fake: FakeTeams) -> Teams:
    channel = fake.channel
    assert isinstance(channel, Teams)
    return channel


def received(fake: FakeTeams, sent: Any) -> Any:
    headers = {name.lower(): value for name, value in sent.headers.items()}
    request = HttpRequest(method="POST", path=sent.path, headers=headers, body=sent.body)
    return fake.channel.receive(request, now=fake.clock.now)


@pytest.mark.parametrize(
    "wrong",
    [
        {"app_id": "desk"},
        {"app_id": None},
        {"app_password": ""},
        {"app_password": None},
        {"tenant_id": "common"},
        {"tenant_id": "contoso.onmicrosoft.com"},
        {"tenant_id": ""},
        {"other_tenants": ["organizations"]},
        {"other_tenants": TENANT},
        {"name": "Teams!"},
        {"service_url": "http://smba.trafficmanager.net/"},
        {"service_url": "smba.trafficmanager.net"},
        {"service_url": "https://u:p@smba.trafficmanager.net/"},
        {"service_url": "https://x:y/"},
        {"service_url": None},
        {"cloud": Cloud(login_url="http://login.example")},
        {"cloud": Cloud(metadata_url="http://login.example/metadata")},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        teams_of(**wrong)


OTHER = "11111111-2222-4333-8444-555555555555"


@pytest.mark.parametrize(
    ("more", "tenant"),
    [
        ({}, TENANT),
        ({"from": {"tenantId": OTHER}}, OTHER),
        ({"from": {"tenantId": OTHER.upper()}}, OTHER),
        ({"conversation": {"tenantId": OTHER}, "channelData": {"tenant": {"id": OTHER}}}, OTHER),
        # They name two tenants that are allowed, and do not say of which of them the person is.
        ({"channelData": {"tenant": {"id": OTHER}}}, None),
    ],
)
def test_people_of_other_tenants_are_others(teams: FakeTeams, more: dict[str, Any], tenant: str | None) -> None:
    cloud = Cloud(login_url=teams.base_url, metadata_url=teams.metadata_url)
    channel = teams_of(other_tenants=[OTHER.upper()], service_url=teams.service_url, cloud=cloud)
    activity = teams.say("hi", RITA)
    whole = json.loads(activity.body)
    for name, change in more.items():
        whole[name] = {**whole[name], **change}
    sent = teams.signed(whole)
    approvals = ChatApprovals(
        MemoryStore(clock=teams.clock), channels=[channel], directory=directory(), keys={"k": b"k" * 32}
    )
    status = approvals.handle("POST", sent.path, sent.headers, sent.body).status
    assert status == (200 if tenant else 403)
    if tenant:
        headers = {"authorization": sent.headers["Authorization"]}
        found = channel.receive(
            HttpRequest(method="POST", path="/", headers=headers, body=sent.body), now=teams.clock.now
        )
        assert isinstance(found, Said) and found.alias == f"teams:{tenant}:{teams.person(RITA)}"


def directory() -> StoreDirectory:
    return StoreDirectory(MemoryStore())


def test_nothing_secret_is_in_a_repr(teams: FakeTeams) -> None:
    scene = Scene(teams)
    found = received(teams, teams.sign(scene.shown, "approve", RITA))
    submitted = Submitted(
        alias="a", delivery="d", data="x", values={"reason": "DE00 SECRET"}, reply={"form": "DE00 SECRET"}
    )
    viewed = Viewed(alias="a", delivery="d", data=scene.shown.buttons["approve"])
    text = repr([found, submitted, viewed, teams.channel])
    assert scene.shown.buttons["approve"] not in text and "SECRET" not in text and APP_PASSWORD not in text
    assert isinstance(found, Click) and found.delivery.startswith("f:") and found.alias == teams.alias(RITA)


def test_it_works_with_votes_from_two_chats(teams: FakeTeams) -> None:
    """All messages of a request stay in step, and each has the cards of its people."""
    with FakeTeams(teams.clock) as second:
        second_channel = teams_of(
            name="teams-b",
            service_url=second.service_url,
            cloud=Cloud(login_url=second.base_url, metadata_url=second.metadata_url),
        )
        store = with_people(MemoryStore(clock=teams.clock), teams)
        approvals = approvals_of(
            store,
            teams,
            channels=[teams.channel, second_channel],
            route=[teams.place, f"teams-b:{second.conversation_id}"],
        )
        desk(approvals, store).invoke("Refund order 7")
        emptied(approvals, teams.clock)
        [shown] = teams.messages()
        teams.click(shown, "approve", RITA)
        emptied(approvals, teams.clock)
        assert "approved by Rita, in teams" in second.messages()[0].text and second.messages()[0].buttons == {}
