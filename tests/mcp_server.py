"""A real MCP server for tests, in a process of its own: `python mcp_server.py LOG [LISTED] [--http=PORT]`.

Everything that it is asked to do goes into the file LOG first, a line of JSON each, so that a test can count it. Without LISTED it is a
refund desk; with it, its tools are those in that file of JSON, as they are there, and each says `done`. With `--http` it prints a line
as soon as it listens. `python mcp_server.py --fork SOCKET` serves nothing itself, and forks a server for each `mcp_start.py`.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.request_state import RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel

LOG = Path(sys.argv[1])

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""


def note(tool: str, **args: Any) -> None:
    """Put it into the log, for good."""
    with LOG.open("a") as log:
        log.write(json.dumps({"tool": tool, **args}) + "\n")


class Order(BaseModel):
    """An order."""

    id: int
    goods: list[str]


class Address(BaseModel):
    """Where to."""

    town: str
    country: str = "AT"


def desk() -> MCPServer:
    """The refund desk. It says of its refunds that they change nothing."""
    key = os.environ.get("DESK_KEY")  # with one, what it leaves with a question is known to the next process too
    security = RequestStateSecurity(keys=[key]) if key else None
    server = MCPServer("desk", log_level="ERROR", request_state_security=security)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True))
    def refund(order_id: int, amount: float = 10.0, note_text: str | None = None) -> str:
        """Refund an order."""
        note("refund", order_id=order_id, amount=amount, note_text=note_text)
        return f"{amount} euros for order {order_id}"

    @server.tool(name="key")
    def tell_key(context: Context[Any, Any]) -> str:
        """Tell the idempotency key."""
        found = (context.request_context.meta or {}).get("phronomy/idempotency-key")
        note("key", key=found)
        return str(found)

    @server.tool()
    def look_up(order_id: int) -> Order:
        """Look an order up."""
        return Order(id=order_id, goods=["Kännchen", "茶"])

    @server.tool()
    def send(to: Address, parcels: list[Address] = []) -> str:  # noqa: B006
        """Send something."""
        note("send", to=to.model_dump(), parcels=[each.model_dump() for each in parcels])
        return "sent"

    @server.tool()
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool()
    def fail(text: str) -> str:
        """Fail."""
        note("fail")
        raise ToolError(f"no {text} today, {os.environ.get('DESK_TOKEN')}")

    @server.tool()
    def refuse() -> str:
        """Refuse, by the protocol."""
        raise MCPError(-32602, "not through this desk")

    @server.tool()
    async def hang() -> str:
        """Take for ever."""
        note("hang")
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            note("cancelled")
            raise
        return "never"

    @server.tool()
    def charge(context: Context[Any, Any]) -> str:
        """Charge the customer. The first time, the server does not live to say so."""
        key = str((context.request_context.meta or {}).get("phronomy/idempotency-key"))
        first = '"charge"' not in LOG.read_text()
        note("charge", key=key)
        if first:
            os.kill(os.getpid(), signal.SIGKILL)
        return "charged"

    inside: list[str] = []
    both = anyio.Event()

    @server.tool()
    async def meet(who: str) -> str:
        """Wait until two are here."""
        inside.append(who)
        if len(inside) == 2:
            both.set()
        await both.wait()
        return f"{who} met"

    @server.tool()
    def picture() -> Image:
        """Draw."""
        return Image(data=b"\x89PNG....", format="png")

    @server.tool()
    def chart() -> list[str | Image]:
        """Draw a chart."""
        return ["Sales:", Image(data=DOT, format="png"), "They are up."]

    @server.tool()
    async def ask(context: Context[Any, Any]) -> str:
        """Ask the user for something."""
        answer = await context.elicit("Which one?", Address)
        return f"the user said {answer}"

    @server.tool()
    def book(city: str, context: Context[Any, Any]) -> str | InputRequiredResult:
        """Book a trip. How long it is, and how to go, are asked."""
        answers = context.input_responses or {}
        if context.request_state is None:
            note("book", city=city, given=bool(answers))
            return InputRequiredResult(
                input_requests={
                    "days": form("How many days?", days={"type": "integer", "maximum": 9}),
                    "way": form("By train?", train={"type": "boolean"}),
                },
                request_state=f"booking {city}",
            )
        said = {name: [answer.action, getattr(answer, "content", None)] for name, answer in answers.items()}
        note("booked", state=context.request_state, said=said)
        if said.keys() == {"days", "way"}:
            return InputRequiredResult(
                input_requests={"days": form("How many days?", days={"type": "integer", "maximum": 9})},
                request_state=f"{context.request_state}, once more",
            )
        return json.dumps(said)

    @server.tool()
    def pester(how: str, context: Context[Any, Any]) -> str | InputRequiredResult:
        """Ask for what is not to be had."""
        note("pester")
        page = ElicitRequestURLParams(message="Log in", url="https://example.com/", elicitation_id="1")
        words = CreateMessageRequestParams(messages=[], max_tokens=5)
        match how:
            case "a state":
                return InputRequiredResult(input_requests={"a": form("Name?")}, request_state="x" * 150_000)
            case "a page":
                return InputRequiredResult(input_requests={"a": ElicitRequest(params=page)})
            case "a model":
                return InputRequiredResult(input_requests={"a": CreateMessageRequest(params=words)})
            case "all at once":
                return InputRequiredResult(input_requests={f"{n}": form(f"{n}?") for n in range(30)})
            case "later":
                count = int(context.request_state or 0) + 1
                return "at last" if count > 5 else InputRequiredResult(request_state=str(count))
            case _:
                return InputRequiredResult(request_state="for ever")

    return server


def form(message: str, **fields: Any) -> ElicitRequest:
    """A question of the desk."""
    schema = {"type": "object", "properties": fields, "required": [*fields]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def listed(path: Path) -> Server[Any]:
    """A server whose tools are those in the file, read anew for each listing."""

    def tools() -> list[Tool]:
        return [Tool.model_validate(each) for each in json.loads(path.read_text())]

    async def on_list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools())

    async def on_call_tool(context: Any, params: Any) -> CallToolResult:
        note(params.name, args=params.arguments)
        return CallToolResult(content=[TextContent(text="done")])

    return Server("listed", on_list_tools=on_list_tools, on_call_tool=on_call_tool)


async def over_stdio(server: Server[Any]) -> None:
    """Serve over standard input and output."""
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def fork(path: str) -> None:
    """Fork a server for each process that asks at this socket, and have it serve at the files of that process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        print("ready", flush=True)
        while True:
            asking, _ = listening.accept()
            told, files, _, _ = socket.recv_fds(asking, 1 << 16, 3)
            if os.fork() == 0:
                listening.close()
                serve_for(asking, json.loads(told), files)
            asking.close()
            for file in files:
                os.close(file)


def serve_for(asking: socket.socket, told: dict[str, Any], files: list[int]) -> None:
    """Be the server that a process asked for, for as long as that lives."""
    global LOG  # noqa: PLW0603
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if os.fork():  # whoever asked may end once the server is gone, not while it is a zombie
            for file in files:
                os.close(file)
            os.wait()
            os._exit(0)
        for place, file in enumerate(files):
            os.dup2(file, place)
            os.close(file)
        os.environ.clear()
        os.environ.update(told["env"])
        os.chdir(told["cwd"])
        sys.argv[1:] = told["argv"]
        LOG = Path(sys.argv[1])

        def watch() -> None:
            asking.recv(1)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=watch, daemon=True).start()
        main()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Serve."""
    files = [each for each in sys.argv[2:] if not each.startswith("--")]
    server: Any = listed(Path(files[0])) if files else desk()
    note("started", pid=os.getpid(), token=os.environ.get("DESK_TOKEN"))
    ports = [int(each.removeprefix("--http=")) for each in sys.argv[2:] if each.startswith("--http=")]
    if not ports:
        anyio.run(over_stdio, getattr(server, "_lowlevel_server", server))
        return
    listening = socket.create_server(("127.0.0.1", ports[0]))
    print("listening", flush=True)
    app = server.streamable_http_app(json_response="--json" in sys.argv)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__" and sys.argv[1] == "--fork":
    fork(sys.argv[2])
elif __name__ == "__main__":
    main()
