"""Drift: how an agent differs from the one that made a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from phronomy.approvals.policy import rules_noted
from phronomy.engine.run import Runner
from phronomy.engine.spec import Spec
from phronomy.foundation.dataclasses import dataclass
from phronomy.records.calls import Call
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer, Approve, Decision, Reject, Skip
from phronomy.rules.votes import GOVERNED
from phronomy.tools.context import InvalidArguments
from phronomy.tools.tool import Tool

_PARTS = {
    "instructions": "instructions",
    "model": "model",
    "output": "output type",
    "guardrails": "guardrails",
    "team_guardrails": "guardrails of the team",
    "memory": "memory",
    "policy": "approval policy",
}
_STRICTNESS = {"never": 0, "predicate": 1, "always": 2}


Fate: TypeAlias = Literal["runs", "edited", "rests"]
"""The fate of a call: it runs with the arguments that were shown, runs with edited ones, or does not run now."""


@dataclass(frozen=True, slots=True)
class Drift:
    """What has changed in an agent since it made a checkpoint, in words.

    `changed` lists the changes that affect pending requests; `resume` refuses them unless the caller accepts them. A
    rejection is never refused because the tool has changed. `asked_again` lists the pending calls whose arguments the tool
    reads as others now, such as with a new default filled in: an approval of such a call is asked for again, with the new
    arguments. `compatible` lists all other changes.
    """

    changed: tuple[str, ...] = ()
    compatible: tuple[str, ...] = ()
    asked_again: tuple[str, ...] = ()


@dataclass(slots=True)
class Found:
    """The changes in the tools of open calls.

    `unfit` says that a call cannot run any more, even if the changes are accepted. `stale` are the places of the calls that are asked
    again.
    """

    changed: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    unfit: bool = False
    stale: set[str] = field(default_factory=set)


def drift_of(checkpoint: Checkpoint, spec: Spec, runners: Iterator[Runner]) -> Drift:
    """How `spec` differs from the agent that made the checkpoint, judged by the calls that are open in `runners`."""
    found = changes_in(checkpoint, spec, runners, {}, "runs")
    changed, again = tuple(dict.fromkeys(found.changed)), tuple(dict.fromkeys(found.again))
    # Equal texts mean that nothing changed: no need to look for what did.
    if checkpoint.agent.json_text("fingerprint") == spec.ref.json_text("fingerprint"):
        return Drift(changed, (), again)
    before, after = checkpoint.agent.fingerprint, spec.ref.fingerprint
    compatible = _differences(before, after, _tool_of(spec))
    team_before, team_after = _named(before, "team"), _named(after, "team")
    for name in sorted({*team_before, *team_after}):
        if name not in team_before:
            compatible.append(f"the conversation may now go to agent {name!r}")
        elif name not in team_after:
            compatible.append(f"the conversation can no longer go to agent {name!r}")
        else:
            differs = _differences(team_before[name], team_after[name], "tool")
            compatible += [f"agent {name!r}: {each}" for each in differs]
    return Drift(changed, tuple(compatible), again)


def changes_in(
    checkpoint: Checkpoint, spec: Spec, runners: Iterator[Runner], answers: Mapping[str, Answer], waits: Fate
) -> Found:
    """The changes in the tools of the calls that are open in `runners`, as far as they matter to the fate of each call.

    `answers` are about to be recorded, by pending id. `waits` is the fate of a call that nobody decides.
    """
    found = Found()
    if checkpoint.agent.name != spec.name:
        found.changed.append(f"the {spec.kind} was {checkpoint.agent.name!r} and is {spec.name!r}")
    around: list[Checkpoint] = []
    fates: dict[str, Fate] = {id: _fate_by(answer) for id, answer in answers.items()}
    # Every run inside that waits, too: an agent as a tool may have changed as well, and goes on with the same resume.
    for runner in runners:
        state = runner.state
        around.append(state)
        # Decisions from higher up are handed down only when the run inside goes on.
        for decision in state.decisions:
            fates.setdefault(decision.pending_id, _fate_by(decision))
        # A refusal inside runs nothing there, whoever goes on with it: the agent around it is the same.
        left = {_fate_of(runner, call, fates, waits) for call in state.calls if call.result is None}
        if state.path and state.agent.name != runner.home.name and left != {"rests"}:
            found.changed.append(
                f"at {state.path} the {runner.spec.kind} was {state.agent.name!r} and is {runner.home.name!r}"
            )
        for call in state.calls:
            # A stop has no tool that could have changed.
            if not call.gate:
                _look_at(runner, call, fates, waits, around, found)
        found.changed += runner.home.lost(state)
    return found


def _look_at(
    runner: Runner, call: Call, fates: Mapping[str, Fate], waits: Fate, around: list[Checkpoint], found: Found
) -> None:
    """Take note of what has changed for one call."""
    # Only calls that may still run, or are decided: what has settled runs under no gate any more.
    before = len(found.changed)
    is_open = call.status in ("asking", "pending", "answered", "ready", "failed") or bool(_questions(runner, call))
    is_open = (is_open or _calls_others(runner, call)) and not _goes_on_inside(runner, call)
    # A rejected call does not run: it needs no tool, so nothing that became of the tool keeps it from that (law 10).
    if is_open and (fate := _fate_of(runner, call, fates, waits)) != "rests":
        _call_changes(runner, call, fate, found)
    if len(found.changed) == before:
        found.changed += _run_changes(runner, call) or _newly_asked(runner, call, around)


def _fate_by(answer: Answer | Decision) -> Fate:
    """The fate of a call by an answer."""
    if isinstance(answer, Reject | Skip) or (
        isinstance(answer, Decision) and answer.kind not in ("approve", "respond", "edit")
    ):
        return "rests"
    edits = isinstance(answer, Approve | Decision) and answer.__dict__["args"] is not None
    return "edited" if edits else "runs"


def _fate_of(runner: Runner, call: Call, fates: Mapping[str, Fate], waits: Fate) -> Fate:
    """The fate of an open call."""
    asked = _questions(runner, call)
    if asked and not _calls_others(runner, call):
        return _least({fates.get(item, waits) for item in asked})
    if call.status in ("pending", "answered"):
        return fates.get(call.pending_id or "", waits)
    return "runs"


def _least(fates: Iterable[Fate]) -> Fate:
    """The fate of a call by the answers to the questions of its body: one answer may make it run."""
    return "rests" if set(fates) == {"rests"} else "runs"


def _newly_asked(runner: Runner, call: Call, around: list[Checkpoint]) -> list[str]:
    """The rules that have come to be about a call which was judged without them, and is about to run."""
    # A call that was judged and let run has not been seen by a policy that is newer than that. It is not run past that policy.
    if call.status != "ready" or call.approved is not None or call.attempt:
        return []
    if (tool := runner.spec.tool(call)) is None:
        return []
    # By agent and pattern, and not by its function: a predicate has no name that would outlive a release.
    known = [rule for state in around for rule in rules_noted(state.agent.fingerprint)]
    new = [rule for rule in runner.rules_about(call, tool) if [rule.of, rule.pattern] not in known]
    return [f"{rule.told} is about tool {tool.name!r} of a call that was judged without it" for rule in new]


def _differences(before: object, after: object, tool: str) -> list[str]:
    """How what a checkpoint notes of an agent differs from what would be noted now, in words."""
    before, after = (each if isinstance(each, dict) else {} for each in (before, after))
    found = [f"the {_PARTS[part]} changed" for part in _PARTS if before.get(part) != after.get(part)]
    tools_before, tools_after = _named(before, "tools"), _named(after, "tools")
    for name in sorted({*tools_before, *tools_after}):
        if name not in tools_before:
            found.append(f"{tool} {name!r} was added")
        elif name not in tools_after:
            found.append(f"{tool} {name!r} was removed")
        elif tools_before[name] != tools_after[name]:
            found.append(f"{tool} {name!r} changed")
    return found


def _named(facts: Mapping[str, object], part: str) -> dict[str, object]:
    """What is noted of each by its name; nothing, if it is none: of a bearer's text, it may be anything."""
    found = facts.get(part)
    return found if isinstance(found, dict) else {}


def _tool_of(spec: Spec) -> str:
    """What its users call what it runs."""
    return "node" if spec.kind == "graph" else "tool"


def _questions(runner: Runner, call: Call) -> list[str]:
    """The pending ids under which the body of the call waits for answers, with which it is to run again."""
    return [item.id for item in call.waiting if item.why == "question" and item.path == runner.state.path]


def _calls_others(runner: Runner, call: Call) -> bool:
    """True if the body of the call waits for calls that it has made: it runs again, whatever their decisions are."""
    nested = runner.spec.nested(runner.state, call) if call.waiting else None
    return nested is not None and nested.is_body and any(item.path != runner.state.path for item in call.waiting)


def _goes_on_inside(runner: Runner, call: Call) -> bool:
    """True if the call has begun, and all that is left is to continue the run inside it."""
    # Its approval was carried out before. A call that waits for that run is not looked at either, so both ways to continue agree.
    nested = runner.spec.nested(runner.state, call) if call.stopped and call.status in ("ready", "failed") else None
    return nested is not None and not nested.is_body


def _run_changes(runner: Runner, call: Call) -> list[str]:
    """The changes that keep the nested run of a call from being continued.

    (The graph itself names the nodes that are gone.)
    """
    path = runner.path_in(call.id)
    inside = runner.shared.nested.get(path) if call.result is None else None
    now = runner.spec.nested(runner.state, call)
    # A run of another kind has another state, so no release of this agent could go on with it: to begin anew would do things twice.
    if inside is None or (now is not None and now.spec.kind == inside.kind):
        return []
    if runner.spec.kind == "graph" and runner.spec.tool(call) is None:
        return []
    kind = _tool_of(runner.spec)
    return [
        f"{kind} {call.name!r}, in which a run of {inside.kind} {inside.agent.name!r} stopped, is gone, or is another one now"
    ]


def _call_changes(runner: Runner, call: Call, fate: Fate, found: Found) -> None:
    """Take note of what has changed in the tool of a call that may run."""
    tool, kind = runner.spec.tool(call), _tool_of(runner.spec)
    if tool is None:
        found.unfit = True
        found.changed.append(f"{kind} {call.tool.name if call.tool else call.name!r} of a pending call is gone")
        return
    assert call.tool is not None
    # A tool of the same name from another server is another tool, whatever its schema says.
    if (tool.name, tool.source) != (call.tool.name, call.tool.source):
        found.changed.append(
            f"{kind} {call.tool.name!r} of a pending call is another one now ({tool.source}:{tool.name})"
        )
    now = tool.identity()
    # A label in a configuration may point to another server after a deploy, and the approval was for what runs at the first.
    if now.endpoint != call.tool.endpoint:
        places = " and now ".join(each or "in this process" for each in (call.tool.endpoint, now.endpoint))
        found.changed.append(f"{kind} {tool.name!r} of a pending call is to run elsewhere: it was {places}")
    # What a server says of its tool is what a human read when they approved. A server can change it at any time.
    if now.description_hash != call.tool.description_hash:
        found.changed.append(f"what is said of {kind} {tool.name!r} of a pending call changed since it was shown")
    # A gate that is stricter now is no drift: the call stops at it, with `NotAuthorized`. One that is looser would let through what
    # somebody wanted to be asked about.
    if _STRICTNESS[tool.gate] < _STRICTNESS[call.tool.gate]:
        found.changed.append(f"the gate of {kind} {tool.name!r} was loosened from {call.tool.gate!r} to {tool.gate!r}")
    if _asks_for_people_now(call, tool):
        found.changed.append(
            f"{kind} {tool.name!r} of a pending call asks for certain people now, and the request for nobody in particular"
        )
    if fate != "edited":  # others are read, and judged, when the edit is
        _look_at_arguments(runner, call, tool, found)


def _look_at_arguments(runner: Runner, call: Call, tool: Tool, found: Found) -> None:
    """Take note if the tool makes something else of the arguments of a call: what was shown is not what would run (law 2)."""
    now = tool.identity()
    of, text = f"{_tool_of(runner.spec)} {tool.name!r}", call.json_text("args")
    try:
        read = tool.read(text)
    except InvalidArguments as error:
        found.unfit = True
        # By name alone: what else is said of them may quote them.
        names = ", ".join(dict.fromkeys(place.split("/")[1] for place, _ in error.places if place))
        where = f" ({names})" if names else ""
        found.changed.append(f"the arguments of a pending call are no longer valid for {of}{where}")
        return
    if read == text:
        return
    # A server may change its tool at any time, and a tool that is as it was reads the world anew: neither is a release, and to ask
    # again and again would wear a human down. What has begun keeps its arguments: with others it might happen twice.
    assert call.tool is not None
    # The channels of a graph are in no schema of its nodes; a state that was read is read as the same again.
    is_release = (now.schema_hash != call.tool.schema_hash or runner.spec.kind == "graph") and now.endpoint is None
    if not is_release or call.attempt or call.stopped:
        found.changed.append(f"the arguments of a pending call are no longer valid for {of}")
        return
    found.stale.add(runner.path_in(call.id))
    found.again.append(f"the arguments of a pending call are read as others now by {of}, so it is asked again")


def _asks_for_people_now(call: Call, tool: Tool) -> bool:
    """Whether a request could be decided by anybody, and the tool would ask for certain people if it were asked today."""
    # Where the request names people, it keeps those that it was asked with, whatever the tool says now. An approval that nobody has
    # carried out is as good as the request: with the store alone, anybody could give it after the deploy.
    asked = call.why in GOVERNED and (call.status in ("asking", "pending", "answered") or call.approved is not None)
    if not asked or tool.gate != "always" or tool.review is None or not tool.review.people.governs:
        return False
    return call.brief is None or all(level.of != "" for level in call.brief.approvers)
