"""Drift: how an agent differs from the one that made a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phronomy.engine.run import Runner
from phronomy.engine.spec import Spec
from phronomy.foundation.dataclasses import dataclass
from phronomy.records.calls import Call
from phronomy.records.checkpoint import Checkpoint
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


@dataclass(frozen=True, slots=True)
class Drift:
    """What has changed in an agent since it made a checkpoint, in words.

    `changed` lists the changes that affect pending requests; `resume` refuses them unless the caller accepts them.
    `compatible` lists all other changes.
    """

    changed: tuple[str, ...] = ()
    compatible: tuple[str, ...] = ()


def drift_of(checkpoint: Checkpoint, spec: Spec, runners: Iterator[Runner]) -> Drift:
    """How `spec` differs from the agent that made the checkpoint, judged by the calls that are open in `runners`."""
    changed: list[str] = []
    if checkpoint.agent.name != spec.name:
        changed.append(f"the {spec.kind} was {checkpoint.agent.name!r} and is {spec.name!r}")
    around: list[Checkpoint] = []
    # Every run inside that waits, too: an agent as a tool may have changed as well, and goes on with the same resume.
    for runner in runners:
        around.append(runner.state)
        if runner.state.path and runner.state.agent.name != runner.home.name:
            changed.append(
                f"at {runner.state.path} the {runner.spec.kind} was {runner.state.agent.name!r} and is {runner.home.name!r}"
            )
        for call in runner.state.calls:
            # A stop has no tool that could have changed.
            if call.gate:
                continue
            # Only calls that may still run, or are decided: what has settled runs under no gate any more.
            found: list[str] = []
            if call.status in ("asking", "pending", "answered", "ready", "failed") or _asks(runner, call):
                found = _call_changes(runner, call)
            changed += found or _run_changes(runner, call) or _newly_asked(runner, call, around)
        changed += runner.home.lost(runner.state)
    # Equal texts mean that nothing changed: no need to look for what did.
    if checkpoint.agent.json_text("fingerprint") == spec.ref.json_text("fingerprint"):
        return Drift(tuple(dict.fromkeys(changed)), ())
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
    return Drift(tuple(dict.fromkeys(changed)), tuple(compatible))


def _rules_in(fingerprint: object) -> list[object]:
    """The rules of approval policies that a checkpoint notes of an agent, and of those that it may hand over to."""
    found = fingerprint.get("policy") if isinstance(fingerprint, dict) else None
    rules = list(found) if isinstance(found, list) else []
    for each in _named(fingerprint, "team").values() if isinstance(fingerprint, dict) else ():
        rules += _rules_in(each)
    return rules


def _newly_asked(runner: Runner, call: Call, around: list[Checkpoint]) -> list[str]:
    """The rules that have come to be about a call which was judged without them, and is about to run."""
    # A call that was judged and let run has not been seen by a policy that is newer than that. It is not run past that policy.
    if call.status != "ready" or call.approved is not None or call.attempt:
        return []
    if (tool := runner.spec.tool(call)) is None:
        return []
    # By agent and pattern, and not by its function: a predicate has no name that would outlive a release.
    known = [rule for state in around for rule in _rules_in(state.agent.fingerprint)]
    new = [rule for rule in runner.rules_about(tool) if [rule.of, rule.pattern] not in known]
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


def _asks(runner: Runner, call: Call) -> bool:
    """Whether the body of the call waits for an answer, with which it is to run again."""
    return any(item.why == "question" and item.path == runner.state.path for item in call.waiting)


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


def _call_changes(runner: Runner, call: Call) -> list[str]:
    tool, kind = runner.spec.tool(call), _tool_of(runner.spec)
    if tool is None:
        return [f"{kind} {call.tool.name if call.tool else call.name!r} of a pending call is gone"]
    assert call.tool is not None
    found: list[str] = []
    # A tool of the same name from another server is another tool, whatever its schema says.
    if (tool.name, tool.source) != (call.tool.name, call.tool.source):
        found.append(f"{kind} {call.tool.name!r} of a pending call is another one now ({tool.source}:{tool.name})")
    now = tool.identity()
    # A label in a configuration may point to another server after a deploy, and the approval was for what runs at the first.
    if now.endpoint != call.tool.endpoint:
        places = " and now ".join(each or "in this process" for each in (call.tool.endpoint, now.endpoint))
        found.append(f"{kind} {tool.name!r} of a pending call is to run elsewhere: it was {places}")
    # What a server says of its tool is what a human read when they approved. A server can change it at any time.
    if now.description_hash != call.tool.description_hash:
        found.append(f"what is said of {kind} {tool.name!r} of a pending call changed since it was shown")
    # A gate that is stricter now is no drift: the call stops at it, with `NotAuthorized`. One that is looser would let through what
    # somebody wanted to be asked about.
    if _STRICTNESS[tool.gate] < _STRICTNESS[call.tool.gate]:
        found.append(f"the gate of {kind} {tool.name!r} was loosened from {call.tool.gate!r} to {tool.gate!r}")
    if _asks_for_people_now(call, tool):
        found.append(
            f"{kind} {tool.name!r} of a pending call asks for certain people now, and the request for nobody in particular"
        )
    text = call.json_text("args")
    try:
        # Read anew by the tool as it is now. If that makes something else of it, what was shown is not what would run (law 2).
        same = tool.read(text) == text
    except InvalidArguments:
        same = False
    if not same:
        found.append(f"the arguments of a pending call are no longer valid for {kind} {tool.name!r}")
    return found


def _asks_for_people_now(call: Call, tool: Tool) -> bool:
    """Whether a request could be decided by anybody, and the tool would ask for certain people if it were asked today."""
    # Where the request names people, it keeps those that it was asked with, whatever the tool says now.
    waits = call.status in ("asking", "pending", "answered") and call.why in GOVERNED
    if not waits or tool.gate != "always" or tool.review is None or not tool.review.people.governs:
        return False
    return call.brief is None or all(level.of != "" for level in call.brief.approvers)
