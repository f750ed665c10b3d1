"""What MCP servers give back beside text: images that the model sees, and notes of what it cannot, or should not, see."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from drivers import Driver
from tables import each
from test_images import GIF, JPEG, PNG, SVG, text
from test_mcp import Place, ask

from phronomy import Agent, Image, MCPServer
from phronomy.errors import ConfigurationError
from phronomy.mcp.content import text_of, value_of
from phronomy.testing import ScriptedModel, call
from phronomy.tools.images import MAX_BYTES, MAX_IMAGES

pytestmark = pytest.mark.unmeasured


def block(data: bytes | str, media_type: str = "image/png") -> dict[str, Any]:
    base64 = data if isinstance(data, str) else b64encode(data).decode()
    return {"type": "image", "data": base64, "mimeType": media_type}


def embedded(data: bytes, media_type: str | None = "image/png") -> dict[str, Any]:
    about = {} if media_type is None else {"mimeType": media_type}
    return {"type": "resource", "resource": {"uri": "file:///a.png", "blob": b64encode(data).decode(), **about}}


def result(*blocks: dict[str, Any], structured: Any = None) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult.model_validate({"content": blocks, "structuredContent": structured})


SAID = {"type": "text", "text": "Look:"}
LINK = {"type": "resource_link", "uri": "https://host/a.png", "name": "a", "mimeType": "image/png"}
LINKED = '{"type":"resource_link","uri":"https://host/a.png","name":"a","mime_type":"image/png"}'
NOTED = f'{{"type":"resource","uri":"file:///a.png","mime_type":"image/png","bytes":{len(PNG)}}}'
ALONE = f'{{"type":"image","mime_type":"image/png","bytes":{len(PNG)}}}'
BIG = PNG + b"\x00" * MAX_BYTES


@each(
    ("found", "value"),
    [
        ([SAID, block(PNG)], ["Look:", Image(PNG)]),
        ([block(JPEG, "image/jpg"), SAID], [Image(JPEG), "Look:"]),
        ([block(GIF, "IMAGE/GIF; charset=binary")], [Image(GIF)]),
        ([embedded(PNG)], [NOTED, Image(PNG)]),
        ([block(PNG), LINK], [Image(PNG), LINKED]),
        ([block(PNG)] * (MAX_IMAGES + 1), [*[Image(PNG)] * MAX_IMAGES, ALONE]),
    ],
)  # fmt: skip
def test_images_are_for_the_model_to_see(found: list[Any], value: list[Any]) -> None:
    assert value_of(result(*found)) == value
    assert value_of(result(*found, structured={"n": 1})) == [*value, '{"n":1}']


@each(
    ("found", "note"),
    [
        pytest.param(block(SVG, "image/svg+xml"), {"mime_type": "image/svg+xml", "bytes": len(SVG)}, id="svg"),
        pytest.param(block(SVG), {"bytes": len(SVG)}, id="svg, said to be png"),
        pytest.param(block(JPEG), {"bytes": len(JPEG)}, id="another type than it is said to be"),
        pytest.param(block(PNG, "text/html"), {"mime_type": "text/html", "bytes": len(PNG)}, id="not said to be an image"),
        pytest.param(block("not base64!"), {"bytes": 8}, id="broken base64"),
        pytest.param(block("iVBORw0KGgo"), {"bytes": 8}, id="base64 that is cut off"),
        pytest.param(block("ïVBORw0KGgo="), {"bytes": 8}, id="not ASCII"),
        pytest.param(block("iVBORw0K\nGgo="), {"bytes": 8}, id="lines"),
        pytest.param(block(""), {"bytes": 0}, id="nothing"),
        pytest.param(block(BIG), {"bytes": len(BIG)}, id="too large"),
        pytest.param(block("A" * 60_000_000), {"bytes": 45_000_000}, id="60 MB of no image"),
    ],
)  # fmt: skip
def test_what_no_model_takes_is_noted(found: dict[str, Any], note: dict[str, Any]) -> None:
    value = value_of(result(SAID, found))
    assert isinstance(value, str) and value == text_of(result(SAID, found))
    told = {"type": "image", "mime_type": "image/png", **note}
    assert value == "Look:\n" + str(told).replace("'", '"').replace(": ", ":").replace(", ", ",")


@each("media_type", ["text/plain", "application/pdf", None])
def test_an_embedded_file_of_another_type_is_noted(media_type: str | None) -> None:
    assert isinstance(value_of(result(embedded(PNG, media_type))), str)


def test_the_images_of_a_result_are_bounded_together() -> None:
    some = [block(PNG + bytes([n]) * (MAX_BYTES // 2)) for n in range(9)]
    value = value_of(result(*some))
    assert [isinstance(one, Image) for one in value] == [True] * 5 + [False] * 4


def test_data_that_a_server_says_twice_is_told_once() -> None:
    data = b64encode(PNG).decode()
    both = result(block(PNG), structured={"data": data, "mimeType": "image/png"})
    assert value_of(both) == [Image(PNG), f'{{"data":"{len(PNG)} bytes","mimeType":"image/png"}}']
    assert data not in text_of(both)


def test_a_real_server_shows_its_chart(driver: Driver, tmp_path: Path) -> None:
    place = Place(tmp_path)
    try:
        tools = place.server(requires_approval=False).tools()
        model = ScriptedModel([call("chart"), "Up."])
        done = driver.invoke(Agent(model=model, tools=tools), "How were sales?")
        first, image, last = done.messages[2].content
        assert (first, last) == (text("Sales:"), text("They are up."))
        assert image["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
        assert model.requests[1].messages == done.messages[:3]

        noted = place.server(requires_approval=False, images=False).tools()
        lines = ["Sales:", '{"type":"image","mime_type":"image/png","bytes":70}', "They are up."]
        assert ask(noted, call("chart"), driver=driver) == [("completed", "\n".join(lines))]
    finally:
        place.close()


def test_images_is_yes_or_no() -> None:
    wrong: Any = "no"
    with pytest.raises(ConfigurationError, match="images is exactly True or exactly False, not str"):
        MCPServer("desk", command=["true"], images=wrong)
