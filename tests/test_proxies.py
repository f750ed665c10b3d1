from __future__ import annotations

import pytest

from phronomy.models.http.proxies import is_excluded, proxy_for

INSIDE = "http://10.1.2.3:8000/v1"
NAMED = "https://models.example.com/v1"
SIXTH = "http://[fd00::1]:8000/v1"


@pytest.mark.parametrize(
    ("url", "entries", "excluded"),
    [
        (INSIDE, "10.1.2.3", True),
        (INSIDE, "10.0.0.0/8", True),
        (INSIDE, "http://10.0.0.0/8", True),
        (INSIDE, "11.0.0.0/8, fd00::/8", False),
        (INSIDE, "10.1.2.3:8000", True),
        (INSIDE, "10.1.2.3:8001", False),
        (INSIDE, "10.1.2.3:x, [10, 10.1.2.3/99, /, ://, ,", False),
        (INSIDE, "http://10.1.2.3/", True),
        (INSIDE, "https://10.1.2.3", False),
        (INSIDE, "example.com, *", True),
        (INSIDE, "0.1.2.3", False),
        (SIXTH, "fd00::1", True),
        (SIXTH, "[fd00::1]", True),
        (SIXTH, "[fd00::1]:8000", True),
        (SIXTH, "[fd00::1]:80", False),
        (SIXTH, "fd00::/8", True),
        (SIXTH, "[fd00::]/8", True),
        (SIXTH, "10.0.0.0/8, ::1", False),
        (NAMED, "EXAMPLE.com", True),
        (NAMED, ".example.com", True),
        (NAMED, "*.example.com", True),
        (NAMED, "*.models.example.com", False),
        (NAMED, "models.example.com:443", True),
        (NAMED, "all://models.example.com", True),
        (NAMED, "ample.com", False),
        (NAMED, "10.0.0.0/8", False),
        ("http://[::1", "::1", False),
        ("http://10.1.2.3:x", "10.1.2.3", False),
    ],
)
def test_what_no_proxy_excludes(url: str, entries: str, excluded: bool) -> None:
    assert is_excluded(url, entries) is excluded


def test_the_proxy_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "10.0.0.0/8")
    assert proxy_for(NAMED) is None
    monkeypatch.setenv("https_proxy", "proxy:3128")
    monkeypatch.setenv("all_proxy", "http://other:3128")
    assert (proxy_for(NAMED), proxy_for(SIXTH), proxy_for(INSIDE)) == ("http://proxy:3128", "http://other:3128", None)
