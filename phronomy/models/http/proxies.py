"""Which proxy a request goes through, as the environment says it; one reading for sync and async clients.

`NO_PROXY` has no standard. What it excludes goes past the proxy in all the forms that httpx and curl read: an internal provider must
not get its requests, and the keys in them, by way of a proxy that was excluded.
"""

from __future__ import annotations


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for the address; None if it names none, or excludes the address."""
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415

    parts, proxies = urlsplit(url), getproxies()
    if not proxies or proxy_bypass(parts.hostname or "") or is_excluded(url, proxies.get("no", "")):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def is_excluded(url: str, entries: str) -> bool:
    """Whether one of these entries, which commas separate, names the address.

    An entry is a host, with the hosts under it; one with `*.` or a port; an address or a network of IP; any of these after `http://`,
    `https://` or `all://`; or `*`.
    """
    for entry in entries.lower().split(","):
        scheme, _, named = entry.strip().rstrip("/").rpartition("://")
        if scheme in ("", "all", url.partition("://")[0]) and (named == "*" or _names(named, url)):
            return True
    return False


def _names(named: str, url: str) -> bool:
    """Whether a host or a network, perhaps with a port, is that of the address. What cannot be read names nothing."""
    from ipaddress import ip_address, ip_network  # noqa: PLC0415  # only where there is a proxy
    from urllib.parse import urlsplit  # noqa: PLC0415

    try:
        parts, entry = urlsplit(url), urlsplit(f"//{named}")
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        if "/" in named:
            network = named.removeprefix("[").replace("]/", "/")
            return ip_address(host) in ip_network(network, strict=False)
        if named.count(":") > 1 and not named.startswith("["):
            return ip_address(host) == ip_address(named)
        if not entry.hostname or entry.port not in (None, port):
            return False
    except ValueError:
        return False
    under = f".{entry.hostname.lstrip('*.')}"
    return len(under) > 1 and (host.endswith(under) or (not entry.hostname.startswith("*.") and host == under[1:]))
