"""The carrier of a story, an MCP server over stdio: `python carrier.py FOLDER`. Who has it ship something is killed before it hears."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

FOLDER = Path(sys.argv[1])
server = MCPServer("carrier", log_level="ERROR")


@server.tool()
def ship(order: int) -> str:
    """Send an order."""
    with (FOLDER / "done").open("a") as done:
        done.write(json.dumps({"tool": "ship", "order": order}) + "\n")
    os.kill(os.getppid(), signal.SIGKILL)
    return "nobody is there to hear it"


if __name__ == "__main__":
    (FOLDER / f"server-{os.getpid()}").touch()
    server.run()
