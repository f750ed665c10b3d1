"""An MCP server over stdio that says exactly what it is told to say: `python raw_mcp.py SCRIPT`, where SCRIPT is JSON.

`tools` is listed as it is. `said` has for each tool what is written when it is called: a text is written as it is in Latin-1, so each
character is a byte; `{"repeat": [text, n]}` is a text n times; `{"line": text}` is a text with the request's id for `ID`; null writes
nothing, for ever; all else is a result, and one with an `error` is that. `first` is written before the handshake, `listing` before the
list. Of each call, the arguments go to `log`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__)


def command(**script: Any) -> list[str]:
    """The command that starts a server with this script."""
    return [sys.executable, "-S", "-E", str(HERE), json.dumps(script)]


def plain(name: str, **properties: Any) -> dict[str, Any]:
    """A tool, as it is listed."""
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def text(said: str, **more: Any) -> dict[str, Any]:
    """A result of one text."""
    return {"content": [{"type": "text", "text": said}], **more}


def write(said: str) -> None:
    """Write bytes, given as Latin-1."""
    sys.stdout.buffer.write(said.encode("latin-1"))
    sys.stdout.buffer.flush()


def answer(id: Any, result: Any) -> None:
    """Answer a request."""
    rest = {"error": result["error"]} if isinstance(result, dict) and "error" in result else {"result": result}
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", "id": id, **rest}).encode() + b"\n")
    sys.stdout.buffer.flush()


def say(id: Any, said: Any) -> None:
    """Say one thing of those that a call is answered with."""
    if isinstance(said, str):
        write(said)
    elif isinstance(said, dict) and "repeat" in said:
        once, times = said["repeat"]
        for _ in range(times):
            write(once)
    elif isinstance(said, dict) and "line" in said:
        write(said["line"].replace("ID", str(id)))
    elif said is not None:
        answer(id, said)


def main(script: dict[str, Any]) -> None:
    """Serve until the input ends."""
    write(script.get("first", ""))
    about = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
    }
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        id, method, params = asked.get("id"), asked.get("method"), asked.get("params") or {}
        if method == "initialize":
            answer(id, about)
        elif method == "tools/list":
            write(script.get("listing", ""))
            answer(id, {"tools": script["tools"]})
        elif method == "tools/call":
            if "log" in script:
                with Path(script["log"]).open("a") as log:
                    log.write(json.dumps(params["arguments"]) + "\n")
            for said in script.get("said", {}).get(params["name"], [text("done")]):
                say(id, said)
        elif id is not None:
            answer(id, {"error": {"code": -32601, "message": "what?"}})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
