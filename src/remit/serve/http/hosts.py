"""By which names this server may be called: the check of Host and Origin that keeps pages in somebody's browser out (DNS rebinding).

Pure. A name is compared whole, never by how it begins: `localhost:1.evil.example` is no localhost. Used by `entering`.
"""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from remit.core.errors import Misused

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_AUTHORITY = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}))(?::(?P<port>[0-9]{1,5}))?")


def host_name(authority: str) -> str | None:
    """The name in `NAME[:PORT]`, in small letters; None: it is none."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None or (found["port"] is not None and int(found["port"]) > 65535):
        return None
    return found["name"].lower()


def origin_name(origin: str) -> str | None:
    """The name in an Origin, `http://NAME[:PORT]`; None: there is none (`null`, an extension of a browser, a path)."""
    scheme, separator, authority = origin.partition("://")
    return host_name(authority) if separator and scheme in ("http", "https") else None


class AllowedHosts:
    """Loopback's names, those it listens at, and those that were named."""

    def __init__(self, names: Iterable[str] = (), public_url: str | None = None) -> None:
        self._names = {_checked(name) for name in (*LOOPBACK, *names)}
        if public_url and (name := urlsplit(public_url).hostname):
            self._names.add(_checked(name))

    def has(self, authority: str) -> bool:
        return host_name(authority) in self._names

    def has_origin(self, origin: str) -> bool:
        return origin_name(origin) in self._names


def _checked(name: str) -> str:
    try:
        if ipaddress.ip_address(name).version == 6:
            name = f"[{name.partition('%')[0]}]"
    except ValueError:
        pass
    found = host_name(name)
    if found is None or found != name.lower():  # with a port it would never be met: ports are not compared
        raise Misused(f"{name!r:.80} is not the name of a machine.", advice='Write names alone: allow_hosts = ["build.example.org"].')
    return found
