"""What Discord refuses: messages, modals and commands beyond the limits of its documentation.

https://docs.discord.com/developers/resources/message, https://docs.discord.com/developers/components/reference
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from phronomy.errors import Portable

EMBEDS: Final = 6_000
V2: Final = 1 << 15


class Wrong(Portable, Exception):
    """An error of the API: the status, the code, and the part of the body that it is about."""

    def __init__(self, status: int, code: int, said: str, at: str = "") -> None:
        super().__init__(f"{status} {code} {said} {at}".strip())
        self.status = status
        self.code = code
        self.said = said
        self.at = at

    @property
    def body(self) -> dict[str, Any]:
        """The body of the answer."""
        found: dict[str, Any] = {"code": self.code, "message": self.said}
        if self.at:
            found["errors"] = {
                self.at: {"_errors": [{"code": "BASE_TYPE_BAD_LENGTH", "message": "Not as it must be."}]}
            }
        return found


def size(text: str) -> int:
    """Characters, in units of UTF-16."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def check_message(body: dict[str, Any], *, edit: bool = False) -> None:
    """Refuse a message that Discord would refuse. Raises `Wrong`."""
    content, embeds, rows = body.get("content") or "", body.get("embeds") or [], body.get("components") or []
    _check(isinstance(content, str) and size(content) <= 2_000, "content")
    _check(not body.get("flags", 0) & V2, "flags")  # not in this fake
    nonce = body.get("nonce")
    _check(nonce is None or (isinstance(nonce, str | int) and len(str(nonce)) <= 25), "nonce")
    _check(len(embeds) <= 10, "embeds")
    for embed in embeds:
        _check_embed(embed)
    _check(sum(_length(embed) for embed in embeds) <= EMBEDS, "embeds")
    _check(len(rows) <= 5, "components")
    for row in rows:
        _check(row.get("type") == 1 and 1 <= len(row["components"]) <= 5, "components")
        for part in row["components"]:
            _check_button(part)
    _check_ids(part for row in rows for part in row["components"])
    if not content.strip() and not embeds and not edit:
        raise Wrong(400, 50006, "Cannot send an empty message")


def check_modal(modal: dict[str, Any]) -> None:
    """Refuse a modal that Discord would refuse. Raises `Wrong`."""
    _check(1 <= size(modal["title"]) <= 45, "title")
    _check(1 <= size(modal["custom_id"]) <= 100, "custom_id")
    _check(1 <= len(modal["components"]) <= 5, "components")
    inputs = []
    for part in modal["components"]:
        if part["type"] == 10:
            _check(1 <= size(part["content"]) <= 4_000, "content")
        elif part["type"] == 18:
            _check(1 <= size(part["label"]) <= 45 and size(part.get("description", "")) <= 100, "label")
            inputs.append(part["component"])
        else:
            _check(part["type"] == 1 and len(part["components"]) == 1, "components")
            _check(1 <= size(part["components"][0].get("label", "")) <= 45, "label")
            inputs.append(part["components"][0])
    for each in inputs:
        _check_input(each)
    _check_ids(inputs)


def check_command(body: dict[str, Any]) -> None:
    """Refuse a slash command that Discord would refuse. Raises `Wrong`."""
    _check(re.fullmatch(r"[-_a-z0-9]{1,32}", body["name"]) is not None, "name")
    _check(1 <= size(body["description"]) <= 100, "description")
    for option in body.get("options", []):
        _check(re.fullmatch(r"[-_a-z0-9]{1,32}", option["name"]) is not None, "options")
        _check(1 <= size(option["description"]) <= 100 and 1 <= option.get("max_length", 1) <= 6_000, "options")


def _check(holds: bool, at: str) -> None:
    if not holds:
        raise Wrong(400, 50035, "Invalid Form Body", at)


def _check_embed(embed: dict[str, Any]) -> None:
    _check(size(embed.get("title", "")) <= 256, "embeds")
    _check(size(embed.get("description", "")) <= 4_096, "embeds")
    _check(0 <= embed.get("color", 0) <= 0xFFFFFF, "embeds")
    fields = embed.get("fields", [])
    _check(len(fields) <= 25, "embeds")
    _check(all(1 <= size(each["name"]) <= 256 and 1 <= size(each["value"]) <= 1_024 for each in fields), "embeds")
    _check(_length(embed) > 0, "embeds")


def _length(embed: dict[str, Any]) -> int:
    texts = [embed.get("title", ""), embed.get("description", "")]
    texts += [text for each in embed.get("fields", []) for text in (each["name"], each["value"])]
    texts += [embed.get("footer", {}).get("text", ""), embed.get("author", {}).get("name", "")]
    return sum(map(size, texts))


def _check_button(part: dict[str, Any]) -> None:
    _check(part.get("type") == 2 and 1 <= size(part.get("label", "")) <= 80, "components")
    if part["style"] == 5:
        _check("custom_id" not in part and size(part["url"]) <= 512, "components")
        _check(part["url"].startswith(("https://", "http://")), "components")
    else:
        _check(
            part["style"] in (1, 2, 3, 4) and "url" not in part and 1 <= size(part["custom_id"]) <= 100, "components"
        )


def _check_input(part: dict[str, Any]) -> None:
    _check(1 <= size(part["custom_id"]) <= 100, "custom_id")
    if part["type"] == 4:
        _check(part["style"] in (1, 2) and 1 <= part.get("max_length", 4_000) <= 4_000, "style")
        _check(size(part.get("value", "")) <= part.get("max_length", 4_000), "value")
        return
    _check(part["type"] == 3 and 1 <= len(part["options"]) <= 25, "options")
    values = [each["value"] for each in part["options"]]
    _check(len(set(values)) == len(values), "options")
    _check(
        all(1 <= size(each["value"]) <= 100 and 1 <= size(each["label"]) <= 100 for each in part["options"]), "options"
    )
    _check(sum(each.get("default", False) for each in part["options"]) <= 1, "options")


def _check_ids(parts: Iterable[dict[str, Any]]) -> None:
    ids = [part["custom_id"] for part in parts if "custom_id" in part]
    _check(len(set(ids)) == len(ids), "custom_id")
