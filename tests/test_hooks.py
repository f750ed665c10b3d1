"""Hooks and the log hear of what happens; they can change none of it, and see no secret that the log should not have."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from drivers import Driver

from phronomy import Agent, ConfigurationError, Event, Hooks, ModelError, tool
from phronomy.observability.hooks import _METHODS
from phronomy.testing import ScriptedModel, call


class Every(Hooks):
    """Notes the method that is called for each event."""

    def __init__(self) -> None:
        self.heard: list[str] = []


def _noting(method: str) -> Any:
    def note(self: Every, event: Event) -> None:
        self.heard.append(f"{method}: {event.type}")

    return note


for _name in sorted(set(_METHODS.values())):
    setattr(Every, _name, _noting(_name))


def desk(*script: Any, **options: Any) -> Agent[Any, Any]:
    tries: list[int] = []

    @tool(requires_approval=True)
    def refund(card: str) -> str:
        """Refund."""
        return f"refunded to {card}"

    @tool(retries=1, idempotent=True, retry_wait=0)
    def shaky() -> str:
        """Works the second time."""
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("shaken")
        return "ok"

    return Agent(name="desk", model=ScriptedModel(script), tools=[refund, shaky], **options)


SCRIPT = [[call("refund", {"card": "4111-secret"}), call("shaky")], ModelError("away"), "done"]


def drive(driver: Driver, agent: Agent[Any, Any]) -> None:
    waiting = driver.invoke(agent, "my card is 4111-secret").checkpoint
    with pytest.raises(ModelError) as failed:
        driver.resume(agent, waiting, approved=True)
    assert failed.value.checkpoint is not None
    assert driver.resume(agent, failed.value.checkpoint).output == "done"


def test_each_kind_of_event_has_its_method(driver: Driver) -> None:
    every = Every()
    drive(driver, desk(*SCRIPT, hooks=[every]))
    assert every.heard == [
        "on_run_started: run_started",
        "on_checkpoint: checkpoint",
        "on_model_started: model_started",
        "on_model_replied: model_replied",
        "on_approval_requested: approval_requested",
        "on_checkpoint: checkpoint",
        "on_tool_started: tool_call_started",
        "on_tool_failed: tool_call_failed",
        "on_tool_started: tool_call_started",
        "on_tool_settled: tool_call_settled",
        "on_checkpoint: checkpoint",
        "on_run_suspended: suspended",
        "on_decided: decided",
        "on_checkpoint: checkpoint",
        "on_tool_started: tool_call_started",
        "on_tool_settled: tool_call_settled",
        "on_checkpoint: checkpoint",
        "on_model_started: model_started",
        "on_run_failed: failed",
        "on_model_started: model_started",
        "on_model_replied: model_replied",
        "on_checkpoint: checkpoint",
        "on_run_ended: completed",
    ]


def test_every_type_of_event_but_the_pieces_of_replies_has_a_method() -> None:
    from typing import get_args

    from phronomy.observability.events import Event as Any_

    types = {type_ for kind in get_args(Any_) for type_ in get_args(kind.model_fields["type"].annotation)}
    assert types - set(_METHODS) == {"text_delta", "reasoning_delta", "tool_call_delta", "node_piece"}
    assert all(callable(getattr(Hooks, method)) for method in _METHODS.values())


def test_the_base_class_does_nothing(driver: Driver) -> None:
    drive(driver, desk(*SCRIPT, hooks=[Hooks()]))


def test_a_hook_that_raises_changes_nothing_and_is_logged_without_what_it_said(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Hooks):
        def on_event(self, event: Event) -> None:
            raise ValueError("4111-secret")

    after = Every()
    drive(driver, desk(*SCRIPT, hooks=[Broken(), after]))
    assert len(after.heard) == 23
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors[0] == "hook Broken raised ValueError on run_started"
    assert len(errors) == 23


def test_an_interrupt_in_a_hook_is_no_errors_of_the_hook(driver: Driver) -> None:
    class Interrupts(Hooks):
        def on_model_replied(self, event: Event) -> None:
            raise KeyboardInterrupt

    agent = desk("done", hooks=[Interrupts()])
    with pytest.raises(KeyboardInterrupt):
        driver.invoke(agent, "go")
    assert agent.store.branches()[0].owner is None


def test_hooks_hear_what_a_stream_gives(driver: Driver) -> None:
    class Types(Hooks):
        def __init__(self) -> None:
            self.types: list[str] = []

        def on_event(self, event: Event) -> None:
            self.types.append(event.type)

    hooks = Types()
    agent = desk("done", hooks=[hooks])
    given = [event.type for event in agent.stream("go")]
    assert [type for type in given if not type.endswith("_delta")] == hooks.types


def test_hooks_are_hooks() -> None:
    with pytest.raises(ConfigurationError, match="hooks are instances of Hooks"):
        desk("x", hooks=[Every]).invoke("go")


def test_the_log_names_what_happened_and_where_and_holds_no_content(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "phronomy")
    drive(driver, desk(*SCRIPT))
    told = [record for record in caplog.records if record.name == "phronomy"]
    assert all("4111-secret" not in record.getMessage() for record in told)
    loud = [record.getMessage().split()[2] for record in told if record.levelno == logging.INFO]
    assert loud == ["run_started", "suspended", "failed", "completed"]
    assert len(told) == 23


def test_nothing_is_read_off_a_run_that_nobody_watches(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    from phronomy.observability import events

    monkeypatch.setattr(events, "Reader", None)
    drive(driver, desk(*SCRIPT))
