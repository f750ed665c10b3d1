"""What the code must look like from the outside: what imports what, which twins are alike, what is exported, how long things are."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from tables import each

import phronomy
from phronomy import errors, tool
from phronomy.testing import ScriptedModel, call

ROOT = Path(phronomy.__file__).parent
FILES = {
    ".".join(("phronomy", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}


@cache
def tree_of(name: str) -> ast.Module:
    """The syntax of a module."""
    return ast.parse(FILES[name].read_text(), str(FILES[name]))


# Imports


def imported(name: str, *, lazy: bool) -> set[str]:
    """The modules that a module imports: at its top, or on use. What is there for type checkers alone does not count."""

    def visit(node: ast.AST, inside: bool) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Import) and inside == lazy:
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and inside == lazy:
                assert child.module is not None, f"{name}: a relative import"
                modules = {f"{child.module}.{alias.name}" for alias in child.names}
                if child.module == "phronomy.foundation.lazy_modules":  # what stands there acts as soon as it is used
                    yield from (alias.name for alias in child.names)
                yield from modules & FILES.keys() or {child.module}
            else:
                yield from visit(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    return set(visit(tree_of(name), False))


ACTS = {
    "asyncio", "concurrent", "contextvars", "http", "httpx", "httpx2", "litellm", "msvcrt", "multiprocessing", "os", "queue", "random",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "tenacity",
    "termios", "threading", "time", "urllib", "uuid",
}  # fmt: skip
"""Clocks, threads, networks, files, chance."""

MAY_ACT = {
    "phronomy.tools.json_schema.bounded": {"contextvars", "time"},  # a budget
    "phronomy.engine.shared": {"threading"},
    "phronomy.tools.json_schema.answers": {"uuid"},  # the type of an answer
    "phronomy.foundation.ids": {"os"},
    "phronomy.foundation.deferred_records": {"os", "threading"},
    "phronomy.runs.driving": {"threading"},
    "phronomy.foundation.json_text": {"os"},  # limits from the environment
    "phronomy.concurrency.retries": {"asyncio", "tenacity", "time"},
    "phronomy.concurrency.leaving": {"threading", "time"},
    "phronomy.mcp.session": {"asyncio", "concurrent", "httpx2", "os", "threading"},
    "phronomy.mcp.transport": {"asyncio", "contextvars", "httpx2"},
    "phronomy.stops.expressions": {"threading"},
    "phronomy.engine.ledger": {"asyncio", "os", "socket", "threading", "time"},
    "phronomy.observability.otel": {"threading", "time"},
    "phronomy.engine.clock": {"time"},
    "phronomy.engine.run_tools": {"asyncio", "time"},
    "phronomy.engine.body_calls": {"asyncio", "threading"},
    "phronomy.tools.context": {"contextvars"},
    "phronomy.engine.superfluous.calls": {"asyncio"},
    "phronomy.concurrency.pieces": {"contextvars", "threading"},
    "phronomy.runs.waiting": {"asyncio", "threading", "time"},
    "phronomy.concurrency.superfluous": {"threading"},
    "phronomy.concurrency.aclosing": {"asyncio", "contextvars"},
    "phronomy.concurrency.crew": {"asyncio", "contextvars", "queue"},
    "phronomy.concurrency.workers": {"asyncio", "contextvars", "os", "queue", "threading", "time"},
    "phronomy.stops.breakpoints": {"threading"},
    "phronomy.cli": {"os"},
    "phronomy.cli.apps": {"os", "urllib"},
    "phronomy.cli.commands.chat": {"time"},
    "phronomy.cli.commands.debug": {"asyncio"},
    "phronomy.cli.commands.discord": {"os", "time"},
    "phronomy.chat.adapters": {"asyncio", "http"},
    "phronomy.chat.background": {"threading"},
    "phronomy.chat.bot.bot": {"secrets"},
    "phronomy.chat.http": {"time"},  # how long an answer may take
    "phronomy.chat.outbox": {"secrets"},
    "phronomy.chat.posts": {"secrets"},
    "phronomy.chat.discord.discord": {"threading", "time"},
    "phronomy.chat.discord.gateway": {"asyncio", "threading"},
    "phronomy.chat.discord.rest": {"httpx2", "threading"},
    "phronomy.chat.slack.client": {"http", "urllib"},
    "phronomy.chat.slack.slack": {"urllib"},
    "phronomy.chat.telegram.api": {"httpx2", "os", "threading", "urllib"},
    "phronomy.chat.telegram.invitations": {"secrets"},
    "phronomy.chat.telegram.markup": {"urllib"},
    "phronomy.chat.telegram.polling": {"threading"},
    "phronomy.chat.deadline": {"socket", "threading"},
    "phronomy.chat.email.connection": {"socket", "ssl"},
    "phronomy.chat.email.email": {"secrets", "ssl"},
    "phronomy.testing.chat.mail.platform": {"asyncio", "socket", "urllib"},
    "phronomy.testing.chat.discord.api": {"threading"},
    "phronomy.testing.chat.loopback": {"http", "ssl", "threading"},
    "phronomy.testing.chat.loopback_socket": {"asyncio", "threading"},
    "phronomy.testing.chat.minimal": {"threading"},
    "phronomy.testing.chat.slack_socket": {"asyncio", "urllib"},
    "phronomy.testing.chat.slack": {"threading", "urllib"},
    "phronomy.testing.chat.talks": {"threading"},
    "phronomy.testing.chat.telegram.bot_server": {"http", "threading", "time", "urllib"},
    "phronomy.testing.chat.telegram.fake": {"urllib"},
    "phronomy.chat.teams.connector": {"httpx2", "secrets", "threading", "time", "urllib"},
    "phronomy.chat.teams.teams": {"urllib"},
    "phronomy.chat.teams.tokens": {"threading"},
    "phronomy.testing.chat.teams.fake": {"threading", "uuid"},
    "phronomy.testing.chat.teams.service": {"urllib"},
    "phronomy.chat.webhooks.addresses": {"socket"},
    "phronomy.chat.webhooks.delivery": {"httpx2", "time", "urllib"},
    "phronomy.chat.webhooks.signature": {"secrets"},
    "phronomy.chat.webhooks.webhooks": {"httpx2", "time"},
    "phronomy.testing.chat.webhooks": {"threading"},
    "phronomy.workers.worker": {"asyncio", "random", "signal", "threading", "time"},
    "phronomy.workers.endpoint": {"asyncio", "http", "socket", "threading"},
    "phronomy.cli.commands.work": {"asyncio", "signal"},
    "phronomy.cli.commands.watch": {"os", "time"},
    "phronomy.cli.notices": {"shutil", "subprocess"},
    "phronomy.cli.commands.serve": {"asyncio", "os", "socket"},
    "phronomy.cli.commands.telegram": {"os"},
    "phronomy.cli.commands.token": {"asyncio"},
    "phronomy.cli.commands.demo": {"os"},  # no plugins of pydantic
    "phronomy.cli.commands.decide": {"os", "subprocess", "tempfile"},
    "phronomy.cli.pager": {"os", "shutil", "signal", "subprocess", "threading"},
    "phronomy.cli.commands.driving": {"asyncio"},
    "phronomy.cli.screen": {"msvcrt", "os", "select", "signal", "termios", "threading"},
    "phronomy.cli.commands.demo_desk": {"os", "sqlite3", "time"},
    "phronomy.graph.state.registry": {"threading", "uuid"},  # the second is a type that values may have
    "phronomy.graph.state.streams": {"threading"},
    "phronomy.stops.interrupts": {"contextvars"},
    "phronomy.mcp.server": {"os", "threading"},
    "phronomy.models.formats.answer": {"time"},
    "phronomy.models.http.direct": {"httpx2", "urllib"},
    "phronomy.models.http.clients": {"asyncio", "httpx2", "os", "ssl", "threading", "urllib"},
    "phronomy.models.http.proxies": {"urllib"},
    "phronomy.models.patience": {"asyncio", "queue", "time"},
    "phronomy.models.retry": {"os", "tenacity", "threading"},
    "phronomy.models.providers": {"os"},  # addresses and keys
    "phronomy.models.http.sse": {"httpx2"},
    "phronomy.models.by_name": {"os"},  # which backend
    "phronomy.models.litellm": {"asyncio", "os", "threading"},
    "phronomy.stores": {"os", "urllib"},  # reading URLs
    "phronomy.tokens.tokens": {"secrets", "time"},
    "phronomy.stores.alone": {"threading"},
    "phronomy.stores.sql.postgres_async": {"asyncio", "os", "threading", "time"},
    "phronomy.stores.storeless_runs": {"os", "threading"},
    "phronomy.stores.lease_keeper": {"os", "threading", "time"},
    "phronomy.concurrency.starting": {"threading"},
    "phronomy.stores.dispatch": {"os"},  # which process
    "phronomy.stores.derived.listing": {"asyncio", "time"},
    "phronomy.stores.native": {"asyncio", "contextvars"},
    "phronomy.stores.sql.postgres_connections": {"os", "threading", "time"},
    "phronomy.stores.redis.connection": {"os"},
    "phronomy.stores.base": {"time"},
    "phronomy.stores.memory": {"os", "time"},
    "phronomy.stores.sql.postgres": {"time"},
    "phronomy.stores.key_value.store": {"time", "urllib"},
    "phronomy.stores.redis.store": {"time", "urllib"},
    "phronomy.stores.sql.group_commit": {"asyncio", "concurrent", "os", "threading", "time"},
    "phronomy.stores.sql.sqlite": {"os", "sqlite3", "threading", "time"},
    "phronomy.testing.scene": {"asyncio", "os", "signal", "threading"},
    "phronomy.testing.store_contract.base": {"asyncio", "threading", "time"},
    "phronomy.testing.contract": {"asyncio", "threading"},
    "phronomy.testing.crash": {"multiprocessing", "os", "secrets", "signal", "tempfile", "time"},
    "phronomy.testing.scripted": {"asyncio", "threading"},
    "phronomy.testing.server": {"http", "socket", "threading", "time"},
    "phronomy.observability.timeline": {"threading", "time"},
    "phronomy.tools.tool": {"asyncio"},  # nor this
}

LAZY = {
    "phronomy.__main__": {"phronomy.cli"},  # once nothing looks for garbage
    "phronomy": {"phronomy.foundation.lazy_names"},
    "phronomy.inbox": {"phronomy.foundation.lazy_names"},
    "phronomy.inbox.pages.deciding.requests": {"phronomy.chat.posts"},  # an inbox alone needs no chats
    "phronomy.tools.json_schema.answers": {"phronomy.tools.json_schema.bounded"},
    "phronomy.tools.json_schema.bounded": {"regex"},
    "phronomy.stops.expressions": {"simpleeval"},
    "phronomy.runs.driving": {"phronomy.observability.events"},  # where somebody listens
    "phronomy.chat.telegram.api": {"httpx2", "urllib.parse", "urllib.request"},
    "phronomy.tokens.keys": {"jwt"},
    "phronomy.tools.docstring": {"docstring_parser"},
    "phronomy.tools.external_results": {"phronomy.tools.json_schema.answers"},
    "phronomy.conversation.input": {"phronomy.models.formats.chat_completions"},
    "phronomy.approvals.answers": {"phronomy.tools.json_schema.answers"},
    "phronomy.stores.base": {"phronomy.records.diff"},
    "phronomy.stores.derived.deciding": {"phronomy.tools.json_schema.answers"},
    "phronomy.stores.derived.people": {"phronomy.records.people"},
    "phronomy.records.record": {"phronomy.foundation.spelling"},
    "phronomy.foundation.spelling": {"difflib"},
    "phronomy.tools.approval": {"phronomy.foundation.in_brief"},
    "phronomy.foundation.lazy_names": {"phronomy.foundation.foreign_words"},
    "phronomy.observability.announcements": {  # where something is to be told
        "phronomy.observability.events",
        "phronomy.observability.votes",
    },
    "phronomy.cli.commands.demo": {"phronomy.cli.commands.demo_desk"},
    "phronomy.cli.commands.demo_desk": {"phronomy.cli.commands.decide"},
    "phronomy.cli.commands.discord": {"phronomy.chat.discord.rest"},
    "phronomy.cli.commands.serve": {"phronomy.inbox", "phronomy.inbox.serving"},
    "phronomy.cli.commands.token": {"phronomy.inbox.auth.api_tokens"},
    "phronomy.cli.graphs": {"phronomy.graph.state.joins"},
    "phronomy.cli.screen": {"msvcrt", "os", "select", "signal", "termios"},
    "phronomy.guardrails.guardrail": {"jsonschema", "phronomy.tools.json_schema.answers"},
    "phronomy.mcp.server": {"phronomy.mcp.session", "phronomy.mcp.elicitation"},
    "phronomy.models.formats.answer": {"email.utils"},
    "phronomy.concurrency.retries": {"tenacity"},
    "phronomy.models.http.direct": {"aiohttp", "httpx2"},
    "phronomy.models.http.clients": {"aiohttp", "httpx2", "ssl", "urllib.request"},
    "phronomy.models.http.proxies": {"ipaddress", "urllib.parse", "urllib.request"},
    "phronomy.models.http.openai_client": {"openai.types.chat"},
    "phronomy.models.retry": {"tenacity"},
    "phronomy.models.http.sse": {"httpx2"},
    "phronomy.cli.apps": {"phronomy.stores.sql.sqlite"},
    "phronomy.models.by_name": {
        f"phronomy.models.{one}" for one in ("chat_completions", "litellm", "messages", "responses")
    },  # which backend
    "phronomy.stores": {
        "phronomy.stores.sql.postgres",
        "phronomy.stores.key_value.books",
        "phronomy.stores.key_value.store",
        "phronomy.stores.redis.store",
        "phronomy.stores.sql.sqlite",
    },  # reading URLs
    "phronomy.stores.sql.postgres": {"phronomy.stores.sql.postgres_async", "phronomy.stores.sql.postgres_connections"},
    "phronomy.stores.redis.store": {"phronomy.stores.redis.connection"},
    "phronomy.observability.telemetry": {
        "phronomy.observability.otel",
        "phronomy.observability.otel_inbox",
        "phronomy.observability.otel_workers",
    },
    "phronomy.testing.chat.mail.platform": {"aiosmtpd.controller", "aiosmtpd.smtp"},  # for this fake alone
    "phronomy.testing.chat.slack": {"phronomy.chat.slack"},  # which needs the SDK
    "phronomy.testing.chat.teams.fake": {"phronomy.chat.teams"},  # which needs more than the fake does
    "phronomy.testing.crash": {"multiprocessing.forkserver"},
    "phronomy.chat.webhooks.webhooks": {"httpx2"},  # the certificates
}

RECORDS = {
    "phronomy.errors",
    "phronomy.foundation.checks",
    "phronomy.foundation.dataclasses",
    "phronomy.foundation.deferred_records",
    "phronomy.foundation.json_text",
    "phronomy.records.approvers",
    "phronomy.records.breakpoint_points",
    "phronomy.records.calls",
    "phronomy.records.chain",
    "phronomy.records.checkpoint",
    "phronomy.records.decisions",
    "phronomy.records.messages",
    "phronomy.records.moves",
    "phronomy.records.principals",
    "phronomy.records.record",
    "phronomy.records.scopes",
    "phronomy.records.triggers",
    "phronomy.rules.added_messages",
    "phronomy.rules.limits",
    "phronomy.rules.open_calls",
    "phronomy.rules.journal",
    "phronomy.rules.reminders",
    "phronomy.rules.table",
    "phronomy.rules.texts_for_model",
    "phronomy.rules.triggers",
    "phronomy.rules.voted_calls",
    "phronomy.rules.votes",
}


def test_only_these_modules_import_what_acts() -> None:
    found = {}
    for name in FILES:
        if name.startswith("phronomy.inbox."):  # a server acts everywhere; it is loaded by those who ask for it alone
            continue
        roots = {module.partition(".")[0] for module in imported(name, lazy=False) | imported(name, lazy=True)}
        if roots & ACTS:
            found[name] = roots & ACTS
    assert found == MAY_ACT


def test_only_these_modules_import_on_use() -> None:
    assert {name: imported(name, lazy=True) for name in FILES if imported(name, lazy=True)} == LAZY


def test_the_rules_know_only_records_and_never_wait() -> None:
    todo, known = ["phronomy.rules.transitions"], set()
    while todo:
        for module in imported(todo.pop(), lazy=False):
            if module.startswith("phronomy") and module not in known:
                known.add(module)
                todo.append(module)
    assert known == RECORDS
    own = imported("phronomy.rules.transitions", lazy=False) - RECORDS
    assert own == {"__future__", "collections.abc", "typing"}
    text = ast.unparse(tree_of("phronomy.rules.transitions"))
    assert "datetime.now" not in text and "utcnow" not in text
    waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield, ast.YieldFrom, ast.Global)
    assert not [node for node in ast.walk(tree_of("phronomy.rules.transitions")) if isinstance(node, waits)]


def test_imports_form_a_dag() -> None:
    graph = {name: imported(name, lazy=False) & FILES.keys() - {name} for name in FILES}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError, naming the cycle
    assert set(order) == set(FILES)
    assert (
        order.index("phronomy.rules.transitions")
        < order.index("phronomy.engine.drive")
        < order.index("phronomy.agents.agent")
    )


# Twins


def twins() -> list[str]:
    """The modules in which every async function has a sync twin. The public nouns above them offer both, each in its way."""
    beside = {"phronomy.concurrency.workers", "phronomy.guardrails.verdict", "phronomy.tools.approval"}
    return [
        name.removeprefix("phronomy.")
        for name in FILES
        if (name.startswith(("phronomy.engine.", "phronomy.runs.")) or name in beside)
        and name != "phronomy.runs.stream"  # two classes
        and any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(tree_of(name)))
    ]


RENAMED = {
    "aannounce": "announce", "acall": "call", "aask_gate": "ask_gate", "aclosing": "closing", "acomplete": "complete",
    "anext": "next", "atried": "tried", "ain_time": "in_time", "apieces_in_time": "pieces_in_time",
    "arender": "render", "aholds_at": "holds_at",
    "acontextmanager": "contextmanager", "ataking_in": "taking_in", "AsyncGenerator": "Generator", "AsyncIterator": "Iterator",
    "ACrew": "Crew", "acrew": "crew", "aside_by_side": "side_by_side", "ADrive": "Drive", "ALetGo": "LetGo",
    "AsyncStream": "Stream", "AOutcomes": "Outcomes", "_alock": "_lock", "asynccontextmanager": "contextmanager",
}  # fmt: skip
"""What the async twin of something is called, beside the functions of these modules themselves."""

ALONE = {
    "aunderstand",
    "ain_thread",
    "held_back",
    "apause",
    "in_either",
    "until_gone",
    "whole",
    "_within",
    "within",
    "_uncut",
}
"""Async functions that start or await threads and tasks: the sync driver needs no such thing, or another one."""

ALLOWED = {
    # A sync body of an async run is in a thread, and the run inside it is driven in the loop.
    "acall": (
        "return self._given(asked)",
        "return self._given(asked) if self._loop is None else _in_loop(self._loop, self._given(asked))",
    ),
    # A coroutine may be collected as garbage once its loop is closed; a thread ends what it has begun.
    "aheld": (
        "if watch is not None and (not watch.is_driven()):\n"
        "                runner.ledger.drop()\n"
        "                raise\n            ",
        "",
    ),
    "aclaim": (
        "except GeneratorExit:\n        runner.ledger.drop()\n        raise\n    except BaseException",
        "except BaseException",
    ),
    "_acreate": (
        "except GeneratorExit:\n        runner.ledger.drop()\n        raise\n    except BaseException",
        "except BaseException",
    ),
    # A sync predicate is asked where it is; an async one cannot be asked by a sync call.
    "aholds": (
        "if not self.is_async:\n        return self.holds(who, request)",
        "self._refuse_async()",
    ),
    "acovers": (
        "if not self.is_async:\n        return self.covers(shown, context)",
        "self._refuse_async()",
    ),
    "aask": (
        "if not self.is_async:\n        return self.ask(shown, context)",
        "self._refuse_async()",
    ),
    "atext": ("if not self.is_async:\n        return self.text(shown, context)", "self._refuse_async()"),
    # An async body is awaited, and a sync one must not hold up the event loop; the sync driver stays in its caller's thread.
    "aexecute": (
        "if not tool.is_async:\n"
        "                value = in_thread(work, tool.timeout, leave)\n"
        "            elif calls is not None:\n"
        "                value = within(tool.call(values, context), None, leaving=calls.leave)\n"
        "            elif inline:\n"
        "                value = in_place(tool.call(values, context))\n"
        "            else:\n"
        "                value = within(tool.call(values, context), tool.timeout, leave)",
        "value = work() if inline else in_thread(work, tool.timeout, leave)",
    ),
    # A body cancels its tasks, and not its threads.
    "_agiven": ("self._uncut(asked)", "self._driven(asked)"),
    # Each waits for what its driver can wait for.
    "astay": ("listening(asyncio.Event())", "listening(threading.Event())"),
    # A coroutine is a piece of work as it is.
    "arun_calls": ("(run(runner, id, drive) ", "(partial(run, runner, id, drive) "),
    # A task that is left is cancelled, and gone before anything else; a thread cannot be.
    "arun_apart": (
        "until_gone(run_nested(runner, call, tool, nested, drive), leave)",
        "in_thread(partial(run_nested, runner, call, tool, nested, drive), None, leave)",
    ),
}
"""The statements in which twins may differ: as they are in the async twin once stripped, and in the sync one."""


class Stripped(ast.NodeTransformer):
    """The code without what makes it async, and without what says so."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        plain = ast.FunctionDef(
            name=self.names.get(node.name, node.name),
            args=node.args,
            body=body,
            decorator_list=node.decorator_list,
            returns=node.returns,
            type_params=[],
        )
        return self.generic_visit(plain)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Await(self, node: ast.Await) -> Any:
        return self.visit(node.value)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self.visit(ast.For(target=node.target, iter=node.iter, body=node.body, orelse=node.orelse))

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        return self.visit(ast.With(items=node.items, body=node.body))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(id=self.names.get(node.id, node.id), ctx=node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if ast.unparse(node) == "asyncio.sleep":
            return ast.parse("time.sleep", mode="eval").body
        return ast.Attribute(value=self.visit(node.value), attr=self.names.get(node.attr, node.attr), ctx=node.ctx)

    def visit_Call(self, node: ast.Call) -> Any:
        function = ast.unparse(node.func)
        if function in (
            "in_store",
            "reading",
            "call",
        ):  # in_store(store, method, ...): the method, in a thread if it may block
            return self.visit(ast.Call(func=node.args[1], args=node.args[2:], keywords=node.keywords))
        if function == "on_loop":  # on_loop(store).primitive(...): the store's, without a thread where it can
            return self.visit(node.args[0])
        if function == "whole":  # whole(work): not cut off half way by a cancellation
            return self.visit(node.args[0])
        if function == "in_either":  # in_either(function, is_async, ...)
            return self.visit(ast.Call(func=node.args[0], args=node.args[2:], keywords=node.keywords))
        if function.endswith("._for_call"):  # names the method if it is sync, to refuse what is async
            return self.generic_visit(ast.Call(func=node.func, args=node.args[:1], keywords=[]))
        return self.generic_visit(node)

    def visit_For(self, node: ast.For) -> Any:
        if ast.unparse(node.body) == f"yield {ast.unparse(node.target)}":
            return ast.Expr(value=self.visit(ast.YieldFrom(value=node.iter)))
        return self.generic_visit(node)

    def visit_With(self, node: ast.With) -> Any:
        node = self.generic_visit(node)
        what, [first, *_] = node.items[0].context_expr, node.body
        if ast.unparse(what).startswith("closing(") and isinstance(first, ast.Expr):
            assert isinstance(first.value, ast.YieldFrom), "closing(x) goes with a loop, or with `yield from x` alone"
            return ast.Expr(value=ast.YieldFrom(value=what.args[0]))  # which closes it, too
        return node


def functions(module: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions and methods of a module, by name; none is nested in another."""
    tree = tree_of(f"phronomy.{module}")
    owners = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name: node for owner in owners for node in owner.body if isinstance(node, kinds)}


def twin_of(name: str) -> str:
    """The name of the sync twin: without the `a`."""
    bare = name.lstrip("_")
    return name[: -len(bare)] + bare[1:] if bare.startswith("a") else ""


def pairs() -> dict[str, tuple[str, str]]:
    """The async functions and methods of the modules that have twins, with their module and their twin."""
    found = {}
    for module in twins():
        mine = functions(module)
        for name, node in mine.items():
            if isinstance(node, ast.AsyncFunctionDef) or (name.startswith("a") and name[1:] in mine):
                found[name] = (module, twin_of(name))
    return found


PAIRS = {name: place for name, place in pairs().items() if name not in ALONE}


def test_every_async_function_has_a_twin_or_is_listed() -> None:
    assert set(pairs()) - set(PAIRS) == ALONE
    assert [name for name, (module, twin) in PAIRS.items() if twin not in functions(module)] == []
    assert set(twins()) >= {
        *(f"engine.{name}" for name in ("ask_model", "drive", "ledger", "nested", "perform", "run", "run_tools")),
        *(f"engine.judging.{name}" for name in ("decide", "guard", "judge")),
        "runs.runs",
    }
    assert len(PAIRS) > 20


@each("name", PAIRS)
def test_twins_are_alike_once_async_is_stripped(name: str) -> None:
    module, twin = PAIRS[name]
    mine, theirs = functions(module)[name], functions(module)[twin]
    strip = Stripped(RENAMED | {one: other for one, (_, other) in pairs().items() if other})
    is_async = ast.unparse(ast.fix_missing_locations(strip.visit(mine)))
    is_sync = ast.unparse(ast.fix_missing_locations(strip.visit(theirs)))
    if delegates(is_async, twin):
        assert is_async.partition("\n")[0] == is_sync.partition("\n")[0]
        return
    was, now = ALLOWED.get(name, ("", ""))
    assert was in is_async
    assert is_async.replace(was, now) == is_sync


def delegates(text: str, twin: str) -> bool:
    """Whether all that the async twin does is to call the sync one, in a thread: it acts on nothing but the store."""
    body = text.partition("\n")[2].strip()
    return body.startswith(f"return self.{twin}(") and "\n" not in body


# The public face


def test_all_is_sorted_and_says_all_that_is_imported_for_it() -> None:
    tree = tree_of("phronomy")
    names: list[str] = []
    lazy: dict[str, str] = {}
    for node in tree.body:
        for_types = isinstance(node, ast.If)
        for line in node.body if isinstance(node, ast.If) else [node]:
            if isinstance(line, ast.ImportFrom) and (line.module or "").startswith("phronomy"):
                names += [found for alias in line.names if (found := alias.asname or alias.name) != "VERSION"]
                lazy |= {alias.name: str(line.module) for alias in line.names if for_types}
    assert phronomy.__all__ == sorted(names, key=lambda name: (not name.isupper(), name))  # as ruff sorts it
    assert lazy == phronomy._LAZY
    for name in phronomy.__all__:
        assert getattr(phronomy, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        phronomy.nonsense  # noqa: B018


def test_every_error_and_every_noun_of_the_readme_is_exported() -> None:
    everything = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    nouns = "Approve Reject Respond Defer Principal Tool ToolContext PromptTemplate MemoryStore SQLiteStore open_store"
    assert {error.__name__ for error in everything} <= set(phronomy.__all__)
    assert set(nouns.split()) <= set(phronomy.__all__)


@pytest.mark.parametrize("package", ["phronomy.stores", "phronomy.testing"])
def test_the_lists_of_packages_are_sorted_and_true(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_importing_phronomy_loads_nothing_heavy() -> None:
    heavy = [
        "aiohttp",
        "asyncio",
        "docstring_parser",
        "httpx2",
        "jsonschema",
        "litellm",
        "phronomy.testing",
        "rich",
        "sqlite3",
        "tenacity",
        "typer",
    ]
    script = f"import sys, phronomy; print(sorted(set({heavy}) & set(sys.modules)))"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}  # it loads sqlite3
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=plain)
    assert done.stdout.strip() == "[]"


def test_a_plain_sync_call_is_at_most_four_frames_below_the_public_method() -> None:
    stacks = []

    @tool
    def look() -> str:
        """Look."""
        stacks.append([frame.name for frame in traceback.extract_stack() if frame.filename.startswith(str(ROOT))])
        return "seen"

    result = phronomy.Agent(model=ScriptedModel([call("look"), "done"]), tools=[look]).invoke("go")
    assert result.output == "done"
    assert len(stacks) == 1
    assert stacks[0][0] == "invoke"
    assert len(stacks[0][1:]) <= 4, stacks


def test_a_plain_async_call_is_at_most_five_frames_below_the_public_method() -> None:
    """It runs in the caller's task, whose stack shows who asked for it."""
    stacks = []

    @tool
    async def look() -> str:
        """Look."""
        stacks.append([(frame.name, frame.filename) for frame in traceback.extract_stack()])
        return "seen"

    async def mine() -> None:
        result = await phronomy.Agent(model=ScriptedModel([call("look"), "done"]), tools=[look]).ainvoke("go")
        assert result.output == "done"

    asyncio.run(mine())
    [stack] = stacks
    names = [name for name, _ in stack]
    assert names[names.index("mine") + 1] == "ainvoke"
    assert len([name for name, file in stack if file.startswith(str(ROOT))]) <= 1 + 5, stack


def public_objects() -> Iterator[tuple[str, Any]]:
    """Every public module, and every public class, function, method and property that is written in one."""
    for info in pkgutil.walk_packages([str(ROOT)], "phronomy."):
        if any(part.startswith("_") for part in info.name.split(".")):
            continue
        module = importlib.import_module(info.name)
        yield info.name, module
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", None) != info.name:
                continue
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{info.name}.{name}", value
            if inspect.isclass(value):
                for part, inner in vars(value).items():
                    if not part.startswith("_") and isinstance(inner, FUNCTIONS):
                        yield f"{info.name}.{name}.{part}", getattr(value, part)


FUNCTIONS = (type(lambda: None), property, classmethod, staticmethod)


def test_every_public_name_and_method_has_a_docstring() -> None:
    found = dict(public_objects())
    assert len(found) > 200
    assert [name for name, value in found.items() if not inspect.getdoc(value)] == []


# Length


@each("name", FILES)
def test_no_file_is_over_800_lines_and_no_function_over_80(name: str) -> None:
    assert len(FILES[name].read_text().splitlines()) <= 800
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = [node for node in ast.walk(tree_of(name)) if isinstance(node, kinds) and node.end_lineno is not None]
    assert [
        f"{node.name}: {node.end_lineno - node.lineno + 1}" for node in long if node.end_lineno - node.lineno >= 80
    ] == []
