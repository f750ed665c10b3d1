"""The reference: every public name on the page of its subject, with what it inherits from classes that are not public.

`docs/build.py` writes the pages, which a tool fills from the docstrings, and then has each name in them lead to where it is told of.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, is_typeddict

MODULES = [
    "phronomy",
    "phronomy.graph",
    "phronomy.models",
    "phronomy.stores",
    "phronomy.workers",
    "phronomy.people",
    "phronomy.tokens",
    "phronomy.long_term_store",
    "phronomy.inbox",
    "phronomy.chat",
    "phronomy.chat.discord",
    "phronomy.chat.email",
    "phronomy.chat.slack",
    "phronomy.chat.teams",
    "phronomy.chat.telegram",
    "phronomy.chat.webhooks",
    "phronomy.testing",
    "phronomy.events",
    "phronomy.timeline",
    "phronomy.drawing",
    "phronomy.triggers",
    "phronomy.wire",
]
"""Where users import from. The reference is of every name in their `__all__`, once."""


@dataclasses.dataclass(frozen=True)
class Page:
    """A page: the modules whose public names are on it, and the types beside them that signatures name."""

    title: str
    homes: tuple[str, ...]
    types: tuple[str, ...] = ()


PAGES = {
    "agent": Page(
        "Agents",
        (
            "agents.agent",
            "records.result",
            "runs.recovery",
            "rules.limits",
            "conversation.memory",
            "conversation.instructions",
            "runs.finding.drift",
        ),
        (
            *("runs.options.AgentOptions", "runs.options.CallOptions", "runs.options.OnPending", "runs.options.Trust"),
            *(
                "records.calls.Input",
                "conversation.input.History",
                "records.result.ResultStatus",
                "conversation.output.OutputMode",
                "conversation.instructions.Instructions",
            ),
            *("runs.as_tool.AgentTool", "runs.as_tool.AgentToolOptions", "conversation.memory.estimate"),
        ),
    ),
    "stream": Page(
        "Streams and events",
        (
            "runs.stream",
            "observability.events",
            "observability.votes",
            "observability.hooks",
            "observability.telemetry",
            "runs.wire",
        ),
        ("observability.events._Event", "observability.telemetry.Redact", "records.calls.Next"),
    ),
    "approvals": Page(
        "Approvals",
        (
            "records.decisions",
            "records.breakpoint_points",
            "approvals.policy",
            "records.audit",
            "records.grants",
            "observability.votes",
            "observability.announcements",
        ),
        (
            *(
                "records.decisions.Answer",
                "records.decisions.Then",
                "records.decisions.Gate",
                "records.decisions.OnExpiry",
                "records.decisions.ToolIdentity",
                "records.approvers.Approvers",
                "records.approvers.Escalation",
                "records.approvers.Vote",
            ),
            *(
                *("records.grants.Given", "records.grants.GrantScope", "records.grants.Revoked"),
                "records.breakpoint_points.Point",
                "records.decisions.Why",
                "records.decisions.Permitted",
                "records.decisions.DecisionKind",
                "engine.spec.Handler",
                "approvals.policy.ApprovalPolicy",
                "approvals.policy.RuleSaid",
            ),
        ),
    ),
    "tools": Page(
        "Tools",
        (
            "tools.tool",
            "tools.context",
            "tools.approval",
            "tools.approvers",
            "tools.images",
            "tools.external",
            "mcp.server",
            "stops.interrupts",
            "stops.triggers",
            "records.triggers",
        ),
        (
            "tools.tool.FunctionTool",
            "tools.tool.ToolOptions",
            "tools.tool.Requirement",
            "tools.context.Predicate",
            "tools.context.Condition",
            "tools.context.ReviewText",
            "tools.approvers.By",
            "tools.approvers.ApproverPredicate",
            "tools.external.ExternalToolOptions",
            "mcp.server.MCPTool",
            "mcp.server.Asked",
        ),
    ),
    "guardrails": Page(
        "Guardrails",
        ("guardrails.guardrail",),
        (
            *(
                "guardrails.guardrail.FunctionGuardrail",
                "guardrails.guardrail.GuardrailOptions",
                "guardrails.guardrail.Answer",
                "guardrails.guardrail.Stage",
            ),
            "foundation.json_text.JsonValue",
        ),
    ),
    "breakpoints": Page(
        "Breakpoints and debugging",
        ("stops.breakpoints", "debugger.debugger"),
        (
            "stops.breakpoints.BreakpointType",
            "stops.breakpoints.Settled",
            "debugger.debugger.Frame",
            "debugger.debugger.Watched",
            "debugger.stepping.Pace",
        ),
    ),
    "checkpoint": Page(
        "Checkpoints and messages",
        ("records.checkpoint", "records.messages", "records.validation", "records.diff"),
        (
            *(
                "records.checkpoint.AgentRef",
                "records.messages.Role",
                "records.messages.Settlement",
                "records.calls.Status",
                "records.calls.End",
                "records.calls.Call",
            ),
            *(
                "records.calls.CallResult",
                "records.calls.HandedOver",
                "records.calls.Refusal",
                "records.calls.Unguarded",
                "records.calls.Ending",
            ),
            *(
                "records.diff.MessageChange",
                "records.diff.CallChange",
                "records.diff.DecisionChange",
                "records.diff.PendingChange",
                "records.diff.ValueChange",
            ),
            *("records.diff.UsageDiff", "records.diff.NestedDiff"),
            *(
                "records.record.Record",
                "records.record.Text",
                "records.record.Json",
                "records.record.JsonObject",
                "records.record.OpenJson",
                "records.record.OpenObject",
            ),
        ),
    ),
    "timeline": Page(
        "Timelines and drawings",
        ("observability.timeline", "observability.timeline_entries", "observability.drawings.drawing"),
        ("observability.drawings.drawing.Edge",),
    ),
    "stores": Page(
        "Stores",
        ("stores", "stores.derived.triggering"),
        ("stores.base.AsyncPrimitives",),
    ),
    "workers": Page("Workers", ("workers",)),
    "people": Page("People and tokens", ("people", "records.people", "records.principals", "tokens")),
    "long-term-store": Page("The long-term store", ("long_term_store", "records.long_term_entries")),
    "inbox": Page("The inbox", ("inbox",)),
    "chat": Page(
        "Chat apps",
        ("chat",),
        (
            "chat.channel.Action",
            "chat.channel.Received",
            "chat.routes.Route",
            "chat.approvals.Hearing",
            "chat.bot.bot.AgentOf",
        ),
    ),
    "graph": Page("Graphs", ("graph",), ("graph.flow.graph.Names",)),
    "teams": Page("Teams", ("agents.handoffs", "teams"), ("agents.handoffs.InputFilter", "teams.local.Past")),
    "models": Page("Models", ("models",)),
    "errors": Page("Errors", ("errors", "records.trigger_errors"), ("errors.Progress",)),
    "testing": Page(
        "Testing",
        ("testing",),
        (
            *("testing.scripted.Reply", "testing.scripted.ScriptedCall", "testing.scripted.ScriptedMessage"),
            *("testing.crash.Report", "testing.scene.Scene"),
        ),
    ),
}
"""Where each is told of, by the name of the page."""


@dataclasses.dataclass(frozen=True)
class Name:
    """A public name: the module that it is imported from, and where it is written down."""

    module: str
    path: str

    @property
    def name(self) -> str:
        """The name itself."""
        return self.path.rpartition(".")[2]

    @property
    def page(self) -> str:
        """The page that it is on."""
        home = self.path.removeprefix("phronomy.")
        for page, its in PAGES.items():
            if home in its.types or (self.module and any(home.startswith(f"{each}.") for each in its.homes)):
                return page
        raise LookupError(f"no page of the reference has {self.path}: name its module in docs/reference.py")

    @cached_property
    def value(self) -> Any:
        """What it names."""
        return getattr(import_module(self.path.rpartition(".")[0]), self.name)


@cache
def names() -> tuple[Name, ...]:
    """Every public name, once."""
    found: dict[str, Name] = {}
    for module in MODULES:
        for name in import_module(module).__all__:
            path = home(module, name)
            found.setdefault(path, Name(module, path))
    return tuple(found.values())


def home(module: str, name: str) -> str:
    """Where a name that a module offers is written down, as a dotted path: imports are followed, those for type checkers too."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return home(node.module, name)
    return f"{module}.{name}"


@cache
def _told() -> tuple[Name, ...]:
    """What is told of: the public names, and the types beside them."""
    return (*names(), *(Name("", f"phronomy.{path}") for its in PAGES.values() for path in its.types))


@cache
def _classes() -> frozenset[type]:
    return frozenset(each.value for each in _told() if inspect.isclass(each.value))


# The pages


def pages() -> dict[str, str]:
    """The pages of the reference, by name: for each public name, what has the tool put its docstrings there."""
    return {page: "".join(_page(page, its)) for page, its in PAGES.items()}


def _page(page: str, its: Page) -> Iterator[str]:
    yield f"# {its.title}\n"
    order = [f"phronomy.{each}." for each in its.homes]
    for module in MODULES:
        here = [each for each in names() if each.page == page and each.module == module]
        if here:
            yield f"\n## From `{module}`\n"
        for each in sorted(
            here, key=lambda name: next(n for n, start in enumerate(order) if name.path.startswith(start))
        ):
            yield from _entry(each)
    if its.types:
        yield "\n## Types beside them\n\nSignatures name these; most programs need not.\n"
    for path in its.types:
        yield from _entry(Name("", f"phronomy.{path}"))


def _entry(name: Name) -> Iterator[str]:
    yield f"\n::: {name.path}\n"
    if not inspect.isclass(name.value):
        return
    inherited = [each for each in members(name.value) if each not in vars(name.value)]
    inherited += [each for each in fields(name.value) if each not in inspect.get_annotations(name.value)]
    yield f"    options:\n      inherited_members: [{', '.join(inherited)}]\n"
    if fields(name.value):
        yield '      show_if_no_docstring: true\n      filters: ["!^_", "!^model_config$"]\n'


def index() -> str:
    """The list of all public names, by page."""
    parts: list[str] = []
    for page, its in PAGES.items():
        here = sorted({(each.name, each.path) for each in names() if each.page == page})
        links = ", ".join(f"[`{name}`](reference/{page}.md#{path})" for name, path in here)
        parts.append(f"\n## [{its.title}](reference/{page}.md)\n\n{links}\n")
    return "".join(parts)


# What has to be there


def members(value: type) -> list[str]:
    """The public methods and properties of a class that have a docstring: its own, and those from bases that are not public.

    What a base that is told of has is told of there. A test of a contract is none of them: pytest calls it.
    """
    found: dict[str, bool] = {}
    for base in value.__mro__:
        if base is not value and base in _classes():
            break
        if base.__module__.partition(".")[0] == "phronomy":
            for name, member in vars(base).items():
                if not name.startswith(("_", "test_")):
                    found.setdefault(name, _is_method(member) and bool(member.__doc__))
    return [name for name, is_told in found.items() if is_told]


def fields(value: type) -> list[str]:
    """The fields of a record or a typed dict that bases do not tell of. Those of a data class are in its signature."""
    if is_typeddict(value):
        return list(value.__annotations__)
    told = {name for base in value.__mro__[1:] if base in _classes() for name in getattr(base, "model_fields", ())}
    return [name for name in getattr(value, "model_fields", ()) if name not in told]


def _is_method(member: Any) -> bool:
    return inspect.isroutine(member) or isinstance(member, (property, cached_property))


def wanted() -> dict[str, list[str]]:
    """The anchors that each page must have: of every public name, and of every method and property."""
    found: dict[str, list[str]] = {page: [] for page in PAGES}
    for each in _told():
        found[each.page].append(each.path)
        if inspect.isclass(each.value):
            found[each.page] += [f"{each.path}.{name}" for name in members(each.value)]
    return found


def missing(html: dict[str, str]) -> list[str]:
    """What is told of on no page, of what must be; the pages by name."""
    return [path for page, paths in wanted().items() for path in paths if f'id="{path}"' not in html[page]]


# What the tool has made of it

_CODE = re.compile(
    r"(?P<left><(?P<tag>pre|a|nav|h\d)\b(?:[^>]*? id=\"(?P<id>[^\"]+)\")?.*?</(?P=tag)>)"
    r"|<code>(?P<name>[A-Za-z_]\w*(?:\.\w+)?)(?:\(\))?</code>",
    re.DOTALL,
)
_PRIVATE_BASES = re.compile(
    r'<p class="doc doc-class-bases">(?:(?!</p>|<a ).)*<span title="phronomy\.(?:(?!</p>|<a ).)*</p>', re.DOTALL
)
_LABELS = re.compile(r'<small class="doc doc-label doc-label-(?:class|instance)-attribute">.*?</small>')
_VALUES = re.compile(
    r' <span class="o">=</span>(?:(?!</pre>).)*\(self\)(?:(?!</pre>).)*?(?=\s*</code></pre>)', re.DOTALL
)


def finished(html: dict[str, str]) -> dict[str, str]:
    """The pages, by name, with each name that is told of leading to where it is, and without what says nothing to a reader.

    That is a base that is not public, whose methods are told of here, and where an attribute is kept, or computed, in the code.
    """
    places = {path: page for page, text in html.items() for path in re.findall(r'<h\d id="(phronomy[^"]+)"', text)}
    found = {}
    for page, text in html.items():
        for pattern in (_PRIVATE_BASES, _LABELS, _VALUES):
            text = pattern.sub("", text)
        found[page] = _linked(text, places)
    return found


def _linked(text: str, places: dict[str, str]) -> str:
    here = ""

    def lead(match: re.Match[str]) -> str:
        nonlocal here
        if match["left"]:
            here = match["id"] or here if match["tag"][0] == "h" else here
            return match[0]
        path = told_at(match["name"], here, places)
        if path is None:
            return match[0]
        return f'<a class="autorefs autorefs-internal" href="../{places[path]}/#{path}">{match[0]}</a>'

    before, article, rest = text.partition("<article")
    return before + article + _CODE.sub(lead, rest)


def told_at(name: str, here: str, places: Collection[str]) -> str | None:
    """Where a name is told of that the docstring of `here` has: one of the same class or of a base of it, or a public one.

    A parameter is told of where it is named.
    """
    owner, value = _object_at(here)
    if inspect.isroutine(value) and name in inspect.signature(value).parameters:
        return None
    first, _, member = name.partition(".")
    public = {each.name: each for each in names()}
    if member:
        bases = public[first].value.__mro__ if first in public and inspect.isclass(public[first].value) else ()
        return _first_of(bases, member, places)
    if (path := _first_of(owner.__mro__ if owner is not None else (), name, places)) is not None:
        return None if path == here else path
    path = public[name].path if name in public else None
    return path if path in places and path != here else None


def _first_of(bases: Iterable[type], name: str, places: Collection[str]) -> str | None:
    paths = [f"{base.__module__}.{base.__qualname__}.{name}" for base in bases]
    return next((path for path in paths if path in places), None)


def _object_at(path: str) -> tuple[type | None, Any]:
    """The class that an anchor is of, or is in, and what it is of."""
    for each in _told():
        if path == each.path:
            return (each.value if inspect.isclass(each.value) else None), each.value
        if path.startswith(f"{each.path}.") and inspect.isclass(each.value):
            return each.value, getattr(each.value, path.removeprefix(f"{each.path}."), None)
    return None, None
