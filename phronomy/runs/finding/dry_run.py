"""What would become of a call of a tool: its gate and the policies around it are asked, and nothing else happens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from phronomy.approvals.policy import DryRun, Rule, RuleSaid, says, stricter
from phronomy.engine.spec import Spec
from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import JsonError, canonical, clean
from phronomy.foundation.quoting import quoted_name
from phronomy.records.approvers import Approvers
from phronomy.records.decisions import Reject
from phronomy.runs.body_spec import BodySpec
from phronomy.tools.approval import Review
from phronomy.tools.context import InvalidArguments, ToolContext
from phronomy.tools.tool import Tool


class Tried(NamedTuple):
    """A call that is tried out: the tool, the rules about it, what they are shown, and where it is."""

    tool: Tool
    rules: tuple[Rule, ...]
    values: Mapping[str, Any]
    args: dict[str, Any]
    path: str


class Said(NamedTuple):
    """The answer of a rule, and what it says of the people who are asked."""

    rule: str
    answer: bool | Reject
    review: Review | None

    @property
    def approvers(self) -> Approvers | None:
        """Who would have to approve; None if nobody in particular is asked."""
        if self.answer is not True or self.review is None or not self.review.people.governs:
            return None
        return self.review.people.approvers


def dry_run(spec: Spec, path: str, args: Mapping[str, Any], deps: object) -> DryRun:
    """What would happen to the call. Raises `ConfigurationError` for an unknown tool, and `AsyncRequired`."""
    tried = try_out(spec, path, args)
    if isinstance(tried, DryRun):
        return tried
    tool, context = tried.tool, context_of(tried.tool, deps)
    # All of them are asked, as before a real call, and each by the same function: what a dry run says is what would happen.
    said = [Said(f"tool {tool.name}", tool.ask_gate(tried.values, context), tool.review)]
    for rule in tried.rules:
        said.append(Said(rule.told, rule.ask(tool, tried.values, context), rule.review))
    return summed_up(tried, said)


async def adry_run(spec: Spec, path: str, args: Mapping[str, Any], deps: object) -> DryRun:
    """As `dry_run`."""
    tried = try_out(spec, path, args)
    if isinstance(tried, DryRun):
        return tried
    tool, context = tried.tool, context_of(tried.tool, deps)
    said = [Said(f"tool {tool.name}", await tool.aask_gate(tried.values, context), tool.review)]
    for rule in tried.rules:
        said.append(Said(rule.told, await rule.aask(tool, tried.values, context), rule.review))
    return summed_up(tried, said)


def try_out(spec: Spec, path: str, args: Mapping[str, Any]) -> Tried | DryRun:
    """The call that is meant; or what it comes to, if its arguments are not valid."""
    if not isinstance(path, str):
        raise ConfigurationError(f"a tool is meant by its name, as text, not by {type(path).__name__}")
    # The way is part of the question: a tool behind two agents is gated by the policies of both.
    *way, name = clean(path).split("/")
    rules = tuple(spec.policy)
    for step in way:
        inner = _inside(spec, step)
        if inner is None:
            raise ConfigurationError(
                f"there is nothing to go into at {quoted_name(step)} of {spec.name!r}, on the way to"
                f" {quoted_name(path)}"
            )
        spec = inner
        # From the inside out, as in a run. The order is that in which they are told; the strictest counts.
        rules = (*spec.policy, *rules)
    tool = spec.tools.get(name) if spec.kind != "graph" else None
    if tool is None:
        there = ", ".join(sorted(spec.tools)) or "none"
        raise ConfigurationError(
            f"{spec.kind} {spec.name!r} has no tool {quoted_name(name)}; it has {there}. Those inside are named"
            " with their way: 'clerk/refund'"
        )
    if not isinstance(args, Mapping):
        raise ConfigurationError(f"the arguments of a tool are a mapping by name, not {type(args).__name__}")
    try:
        # Through text, as the arguments of a model come: a value that JSON cannot hold would never reach a gate.
        text = tool.read(canonical(dict(args)))
        values = tool.bind(text)
    except (InvalidArguments, JsonError) as error:
        return DryRun(tool=path, verdict="invalid", reason=str(error))
    return Tried(tool, tuple(rule for rule in rules if rule.covers(tool)), values, json.loads(text), path)


def _inside(spec: Spec, step: str) -> Spec | None:
    """The spec behind a tool or a node of this name, or of what its body calls, or of an agent that may be handed the conversation."""
    inner = getattr(spec.tools.get(step), "inner", None)
    if inner is not None:
        found: Spec = inner.spec
        return found
    if (tool := spec.tools.get(step)) is not None and tool.calls:
        return BodySpec(outer=spec, of=tool)
    return next((each for each in getattr(spec, "team", {}).values() if each.name == step), None)


def context_of(tool: Tool, deps: object) -> ToolContext[object]:
    """The context of a call that is not made."""
    return ToolContext(
        # There is no run, and no key: a predicate that looks for one finds none, rather than one of another call.
        run_id="",
        thread_id=None,
        call_id="",
        pending_id=None,
        tool_name=tool.name,
        idempotency_key="",
        attempt=0,
        deps=deps,
    )


def summed_up(tried: Tried, said: list[Said]) -> DryRun:
    """The verdict of the strictest."""
    verdict: bool | Reject = False
    for each in said:
        # As for a real call: a rejection outweighs a question, and a question outweighs a yes, whoever says it.
        if stricter(each.answer, verdict):
            verdict = each.answer
    reason = verdict.reason if isinstance(verdict, Reject) else None
    # To say that it needs an approval would be half of it: nobody approves what is done elsewhere.
    if verdict is True and tried.tool.external:
        reason = "it is external: the call waits for its result"
    rules = tuple(RuleSaid(each.rule, says(each.answer), each.approvers) for each in said)
    return DryRun(tool=tried.path, verdict=says(verdict), rules=rules, reason=reason, args=tried.args)
