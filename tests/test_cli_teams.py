"""`phronomy teams`: the manifest of an app, and its package."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from phronomy.chat.teams import manifest, package
from phronomy.cli import DONE, MISUSED, run

APP = "5a1f0c8e-0000-4000-8000-0000000000aa"
WEBSITE = "https://example.org/"
GIVEN = ["--app-id", APP, "--website", WEBSITE]


def test_it_prints_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["teams", "manifest", "--app-id", APP.upper(), "--website", WEBSITE, "--name", "Desk"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found == manifest(app_id=APP, website=WEBSITE, name="Desk")
    # It may read no messages but those to it, and no files or people.
    assert found["bots"] == [{"botId": APP, "scopes": ["personal", "team", "groupChat"], "isNotificationOnly": False}]
    assert "authorization" not in found and "permissions" not in found and found["validDomains"] == []


def test_it_writes_the_package_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("desk.zip")
    assert run(["teams", "manifest", *GIVEN, "--package", str(file)]) == DONE
    assert capsys.readouterr().out == "The package of the app is in desk.zip. Upload it in Teams.\n"
    assert file.read_bytes() == package(manifest(app_id=APP, website=WEBSITE))
    with zipfile.ZipFile(io.BytesIO(file.read_bytes())) as archive:
        assert archive.testzip() is None
        found = json.loads(archive.read("manifest.json"))
        sizes = {name: size_of(archive.read(name)) for name in found["icons"].values()}
        assert sorted(archive.namelist()) == ["color.png", "manifest.json", "outline.png"]
    assert found == manifest(app_id=APP, website=WEBSITE) and sizes == {"color.png": 192, "outline.png": 32}


def test_it_writes_over_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("desk.zip")
    file.write_bytes(b"of somebody")
    assert run(["teams", "manifest", *GIVEN, "--package", str(file)]) == MISUSED
    assert "desk.zip is there already: remove it, or name another file" in capsys.readouterr().err
    assert file.read_bytes() == b"of somebody"


def size_of(image: bytes) -> int:
    """The width and height of a square PNG, all of whose parts are whole."""
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    at, parts = 8, {}
    while at < len(image):
        size, kind = struct.unpack(">I4s", image[at : at + 8])
        data = image[at + 8 : at + 8 + size]
        assert struct.unpack(">I", image[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + data)
        parts[kind] = data
        at += 12 + size
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    assert len(zlib.decompress(parts[b"IDAT"])) == height * (1 + 4 * width) and width == height
    return int(width)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["--app-id", "desk", "--website", WEBSITE],
        ["--app-id", APP, "--website", "http://example.org"],
        [*GIVEN, "--name", "n" * 31],
        [*GIVEN, "--name", ""],
        [*GIVEN, "--package", "/nowhere/at/all.zip"],
    ],
)
def test_wrong_options_are_refused(wrong: list[str]) -> None:
    assert run(["teams", "manifest", *wrong]) == MISUSED


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["teams"]) == DONE
    assert "manifest" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", ["slack manifest", "telegram webhook", "teams manifest", "discord commands", "outbox retry"]
)
def test_commands_that_set_up_speak_of_no_decision(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words.split(), "--help"]) == DONE
    assert "Exit status: 0 done; 1 error; 2 wrong usage; 130 Ctrl-C." in " ".join(capsys.readouterr().out.split())
