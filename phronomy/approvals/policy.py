"""Approval policies: which calls a human approves, in a run and in all runs inside it, whatever the tools themselves say.

Of everything that has a say about a call, the strictest wins: the gate of its tool, the policy of the agent that calls it, and those of
all agents and graphs around that one. A policy only ever adds to what is asked. `dry_run` says which of them would ask.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import texts_in
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted_name
from phronomy.records.approvers import Approvers
from phronomy.records.decisions import Reject
from phronomy.tools.approval import Approval, ApprovalPredicate, Review
from phronomy.tools.context import ToolContext
from phronomy.tools.tool import Requirement, Tool

if TYPE_CHECKING:
    from phronomy.tools.toolbox import Toolbox

ApprovalPolicy: TypeAlias = Mapping[str, Requirement] | Iterable[str]
"""Names of tools whose calls need approval, or a mapping from names to rules.

A name can be a pattern, such as `"send_*"` or `"*"`. A rule is True, a predicate, or an `Approval`, like
`requires_approval` of a tool. In a list, each name has the rule True. The rule False asks for no approval, but other rules still count.
"""


def rules_noted(fingerprint: object) -> list[object]:
    """The rules, `[of, pattern]` each, of policies that a checkpoint notes of an agent, and of those that it may hand over to."""
    # A bearer's text may say anything.
    if not isinstance(fingerprint, dict):
        return []
    found, team = fingerprint.get("policy"), fingerprint.get("team")
    rules = list(found) if isinstance(found, list) else []
    for each in team.values() if isinstance(team, dict) else ():
        rules += rules_noted(each)
    return rules


def patterns_noted(fingerprint: object) -> list[str]:
    """The patterns of the rules that a checkpoint notes of an agent."""
    pairs = (rule for rule in rules_noted(fingerprint) if isinstance(rule, list) and len(rule) == 2)
    return [pattern for _, pattern in pairs if isinstance(pattern, str)]


class Handled(NamedTuple):
    """An approval handler, and whether calling it gives something to await."""

    handler: Callable[[str, dict[str, Any]], object]
    is_async: bool


class Rule:
    """One line of a policy."""

    def __init__(self, of: str, pattern: str, given: Requirement, handler: Handled | None = None) -> None:
        asks = given.when if isinstance(given, Approval) else given
        self.of = of
        self.handler = handler  # which may answer what this rule asks: that of a run inside may not
        self.pattern = pattern
        # People read it on pages and in chats, so there are no quotes as in code; what nobody can see is escaped all the same.
        self.told: str = f"the approval policy of {of} ({quoted_name(pattern)[1:-1]})"
        self._always = asks is True
        self._predicate = None if isinstance(asks, bool) else ApprovalPredicate(asks, self.told, ConfigurationError)
        self.review: Review | None = (
            Review(given, self.told, ConfigurationError, self.told) if isinstance(given, Approval) else None
        )
        self.is_async: bool = any(each is not None and each.is_async for each in (self._predicate, self.review))

    def __repr__(self) -> str:
        return f"<rule of {self.of}: {self.pattern!r}>"

    def handled_by(self, handler: Handled | None) -> Rule:
        """The rule with this handler, unless it has one."""
        if self.handler is not None or handler is None:
            return self
        rule = copy.copy(self)
        rule.handler = handler
        return rule

    @property
    def may_ask(self) -> bool:
        """True if the rule may ask about a call: it is not exactly False."""
        return self._always or self._predicate is not None

    def covers(self, tool: Tool) -> bool:
        """Whether it is about this tool."""
        return fnmatchcase(tool.name, self.pattern)

    def ask(self, tool: Tool, values: Mapping[str, object], context: ToolContext[object]) -> bool | Reject:
        """The answer of the rule about a call with these values. Raises `AsyncRequired`."""
        if self._predicate is None:
            return self._always
        return self._predicate.ask(partial(tool.shown, values), context)

    async def aask(self, tool: Tool, values: Mapping[str, object], context: ToolContext[object]) -> bool | Reject:
        """As `ask`, for predicates of both kinds."""
        if self._predicate is None:
            return self._always
        return await self._predicate.aask(partial(tool.shown, values), context)


def rules_of(name: str, given: object, handler: Handled | None) -> tuple[Rule, ...]:
    """The rules in the policy of an agent or a graph, which this handler may answer. Raises `ConfigurationError`."""
    names = texts_in([*given] if isinstance(given, Mapping) else given)
    if names is None or "" in names:
        raise ConfigurationError(
            f"{name!r}: approval_policy is a mapping of names of tools to True or a predicate, or a list of names"
        )
    lines: Mapping[str, Any] = given if isinstance(given, Mapping) else dict.fromkeys(names, True)
    for pattern, asks in lines.items():
        if not isinstance(asks, bool | Approval) and not callable(asks):
            raise ConfigurationError(
                f"{name!r}: approval_policy has {type(asks).__name__} for {pattern!r}: give exactly True, exactly False, a predicate,"
                " or an Approval"
            )
    return tuple(Rule(name, pattern, asks, handler) for pattern, asks in lines.items())


def check_rules(rules: Iterable[Rule], specs: Iterable[Toolbox]) -> None:
    """Refuse a rule that is about no tool of these: it would ask for nothing, and nobody would know. Raises `ConfigurationError`."""
    known = {
        tool.name: tool
        for spec in specs
        if spec.kind != "graph"
        for asked in spec.tools.values()
        for tool in (asked, *asked.fallback)
    }
    for rule in rules:
        if not any(rule.covers(tool) for tool in known.values()):
            there = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(
                f"{rule.told} is about no tool: those of {rule.of!r}, and of what runs inside it, are {there}"
            )


_STRICT: Final = {"run": 0, "ask": 1, "reject": 2}

Says: TypeAlias = Literal["run", "ask", "reject"]


def says(answer: bool | Reject) -> Says:
    """The word for an answer of a rule."""
    if isinstance(answer, Reject):
        return "reject"
    return "ask" if answer is not False else "run"


def stricter(one: bool | Reject, other: bool | Reject) -> bool:
    """Whether `one` allows less than `other`."""
    return _STRICT[says(one)] > _STRICT[says(other)]


@dataclass(frozen=True, slots=True)
class RuleSaid:
    """The answer of one rule about a call.

    `rule` names the rule in words: the requirement of a tool, or a line of a policy. `approvers` says who would have to
    approve, and how many of them; it is None if the rule does not ask, or if anybody may approve.
    """

    rule: str
    says: Says
    approvers: Approvers | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What would happen to a call, and which rules decide that. Nothing is run or stored, and nobody is asked.

    `verdict` is the answer of the strictest rule: `"run"`, `"ask"` (a human is asked) or `"reject"`. It is `"invalid"`
    if the tool does not take the arguments; `reason` then says why. `rules` are all rules that count: first that of the
    tool, then from the inside out. `args` are the arguments as a human would see them.
    """

    tool: str
    verdict: Literal["run", "ask", "reject", "invalid"]
    rules: tuple[RuleSaid, ...] = ()
    reason: str | None = None
    args: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def decided_by(self) -> tuple[str, ...]:
        """The rules that decide what happens to the call, in words."""
        return tuple(each.rule for each in self.rules if each.says == self.verdict)
