"""An address of the web that somebody wrote, read strictly: what two programs could read differently is refused.

Used for what a caller asks for and for what a server redirects to. Nothing here resolves or connects.
"""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

from remit.core.errors import Misused
from remit.core.secret_looks import is_secret_in_query

LONGEST = 8192
_PORTS = {"http": 80, "https": 443}
_UNFIT = re.compile(r"[\x00-\x20\x7f-\x9f\\]")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
_SAFE = "!$&'()*+,;=:@/?%~-._[]"
BAD_PORTS = frozenset(
    {
        0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110, 111, 113,
        115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556,
        563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6665, 6666,
        6667, 6668, 6669, 6679, 6697, 10080, 11211,
    }
)  # fmt: skip
"""Those that no browser opens (WHATWG), and two whose servers take an HTTP request for commands. Other protocols live there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    scheme: str
    host: str
    """A name in lower case and ASCII, or an address without brackets."""
    port: int
    path: str
    """With the query, as it is sent."""
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None = None
    """When the host is an address and no name."""

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def shown(self) -> str:
        """For people and records: values of parameters that are secrets by their name are struck out."""
        return without_secrets(self.url)


def without_secrets(url: str) -> str:
    """`url` without user, password and fragment, and with the values of secret parameters struck out; never raises."""
    try:
        parts = urlsplit(url)
        said = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return "(an address that cannot be read)"
    query = parts.query
    if any(is_secret_in_query(name) for name, _ in said):
        query = urlencode([(name, "REDACTED" if is_secret_in_query(name) else value) for name, value in said])
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment="").geturl()


def target_of(url: str) -> Target:
    """What is meant by `url`. Raises `Misused`, whose words never repeat a password that stands in it."""
    url = url.strip()
    if len(url) > LONGEST:
        raise Misused(f"The address is {len(url)} characters long; at most {LONGEST} are read.")
    if _UNFIT.search(url):
        raise Misused("The address holds a space, a backslash or a control character.", advice="Write them as %20, %5C, ….")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Misused("The address cannot be read: its host or port is malformed.", advice="Use http://host:port/path.") from None
    if parts.scheme not in _PORTS:
        raise Misused(f"Only http and https are fetched, not {parts.scheme[:20] or 'an address without a scheme'}.", advice=_WHOLE)
    if "@" in parts.netloc:
        raise Misused(
            "The address carries a user name or password.",
            advice="Leave them out, and give them in the Authorization header instead: they are then not recorded.",
        )
    host, address = _host(parts.netloc)
    port = _PORTS[parts.scheme] if port is None else port
    if port in BAD_PORTS:
        raise Misused(f"Port {port} belongs to another protocol than HTTP.", advice="Fetch from a port where a web server answers.")
    path = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    return Target(scheme=parts.scheme, host=host, port=port, path=path, address=address)


_WHOLE = "Give a whole address, e.g. https://example.com/."


def _host(netloc: str) -> tuple[str, ipaddress.IPv4Address | ipaddress.IPv6Address | None]:
    if netloc.startswith("["):
        text, _, rest = netloc[1:].partition("]")
        try:
            six = ipaddress.IPv6Address(text)
        except ValueError:
            raise Misused("The host is no IPv6 address.", advice="Write [2001:db8::1].") from None
        if rest and not rest.startswith(":"):
            raise Misused("Something stands between the host and its port.", advice="Write [2001:db8::1]:8080.")
        if six.scope_id is not None:
            raise Misused("The host names a network interface.", advice="Leave out what stands after %.")
        return six.compressed, six
    name = _ascii(netloc.partition(":")[0]).removesuffix(".").lower()
    if not name:
        raise Misused("The address names no host.", advice=_WHOLE)
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return _dotted(name)
    if not _NAME.fullmatch(name):
        raise Misused("The host is no name of the internet.", advice="Use letters, digits and hyphens, with dots between.")
    return name, None


def _dotted(name: str) -> tuple[str, ipaddress.IPv4Address]:
    """What ends in a number is an IPv4 address, in its one plain spelling: others (2130706433, 0x7f.1, 0177.0.0.1) only ever hide one."""
    try:
        four = ipaddress.IPv4Address(name)
    except ValueError:
        raise Misused("The host is an IPv4 address in an odd spelling.", advice="Write four decimal numbers: 192.0.2.1.") from None
    return str(four), four


def _ascii(name: str) -> str:
    """International names in the form that is looked up; what only looks like digits or dots is made such, and judged as such."""
    if name.isascii():
        return name
    import idna

    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise Misused("The host is no name of the internet.", advice="Check its spelling.") from None


def joined(base: Target, location: str) -> str:
    """Where a redirect or a link leads, seen from `base`."""
    return urljoin(base.url, location)
