"""Facts for policy rules: paths, URLs and commands, parsed from parameters and from agents' requests."""

import contextlib
import ipaddress
import os
import shlex
import socket
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from remit.core.agents import AgentSpec
from remit.core.errors import Misused
from remit.core.languages import plain_name
from remit.core.parameters import declared_name
from remit.core.policy import Fact
from remit.core.protected_paths import protection_of
from remit.system.beneath import real_path

LONGEST_TEXT = 2000
LONGEST_PATH = 4096
"""The kernel's limit; longer paths do not exist."""
_LARGEST = 2**63 - 1
_PORTS = {"http": 80, "https": 443, "ftp": 21}
MOST = 1000
"""Maximum resources of one delegation."""
OURS = frozenset(
    {"caller", "depth", "ancestors", "target", "operation", "delegation", "timeout_seconds", "tokens_left", "cents_left", "on_behalf"}
    | {"has_read_files", "has_read_untrusted", "known_url", "approved_host", "sends_data"}
)
"""Facts about the caller and its tree, which agents cannot set."""
COMPUTED = frozenset(
    OURS
    | {"path", "name", "parts", "inside", "protected", "own_scratch", "assigned"}
    | {"url", "scheme", "host", "port", "address", "command", "program", "language"}
)
"""Facts that remit computes; a parameter of the same name does not replace them."""

Facts = dict[str, Any]


def facts_of(spec: AgentSpec, parameters: Mapping[str, Any], workspace: Path) -> list[Facts]:
    """Facts of a delegation: the meaning of its parameters, and parameters that are numbers, booleans or enum values.

    Several if a parameter is a list of paths or URLs: each must be allowed."""
    common: Facts = {}
    parameters = as_declared(spec, parameters)
    for name, value in parameters.items():
        if name not in spec.acts_on and name not in COMPUTED and _is_telling(name, value, spec):
            common[name] = value
    found = [common]
    for name, kind in spec.acts_on.items():
        value = parameters.get(name)
        found = _joined(found, _each(kind, default_of(spec, name) if value is None else value, workspace))
    return found


def as_declared(spec: AgentSpec, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters under their declared names, so that the other spelling does not bypass a rule."""
    known = {*spec.acts_on, *spec.parameters_schema.get("properties", ())}
    return parameters if parameters.keys() <= known else {declared_name(name, known): value for name, value in parameters.items()}


def default_of(spec: AgentSpec, name: str) -> Any:
    """The default of a parameter; rules apply to it as well."""
    return spec.parameters_schema.get("properties", {}).get(name, {}).get("default")


def _joined(found: list[Facts], each: list[Facts]) -> list[Facts]:
    if len(found) * len(each) > MOST:
        raise Misused(f"The delegation acts on more than {MOST} resources at once.", advice="Split it into several delegations.")
    return [{**facts, **more} for facts in found for more in each]


def _each(kind: Fact, value: Any, workspace: Path) -> list[Facts]:
    """Facts of each resource in a parameter; a file operation without a path applies to all files."""
    if value is None:
        return [path_facts(".", workspace)] if kind is Fact.PATH else [{}]
    several = value if isinstance(value, list | tuple) and kind is not Fact.COMMAND else [value]
    return [_PARSERS[kind](one, workspace) for one in several[: MOST + 1]] or [{}]


def reported_facts(said: Mapping[str, Any], workspace: Path) -> list[Facts]:
    """Facts of an action that an agent reports. It may add facts it looked up (an address) but not contradict computed ones."""
    found: list[Facts] = [{}]
    for kind in _PARSERS:
        if said.get(kind) is not None:
            found = _joined(found, _each(Fact(kind), said[kind], workspace))
    for facts in found:
        for name, value in said.items():
            if value is not None and name not in OURS:
                facts.setdefault(name, _simple(value))
    return found


def path_facts(value: Any, workspace: Path) -> Facts:
    given = text = str(value)
    root = str(workspace)
    if os.path.isabs(text):
        text = os.path.normpath(text)
        # POSIX keeps two leading slashes; the kernel sees one.
        text = "/" + text.lstrip("/")
        text = os.path.relpath(text, root) if text == root or text.startswith(root.rstrip("/") + "/") else text
    path = os.path.normpath(text) if text else "."
    inside = not (os.path.isabs(path) or path == ".." or path.startswith("../") or "\0" in path or len(path) > LONGEST_PATH)
    parts = [part for part in path.split("/") if part]
    facts = {"path": path[:LONGEST_PATH], "name": parts[-1] if parts else "", "parts": sorted(set(parts)), "inside": inside}
    protection = protection_of(path)
    if protection is not None:
        facts["protected"] = str(protection)
    return facts if ".." not in given or not inside else _ambiguous(given, root, facts)


def _ambiguous(given: str, root: str, facts: Facts) -> Facts:
    """`link/../x` is different for people and for the kernel: if the two differ, it does not count as inside."""
    try:
        real, read = (os.path.relpath(real_path(os.path.join(root, path)), real_path(root)) for path in (given, facts["path"]))
    except (OSError, ValueError):
        return facts  # opening it will fail with the reason
    return facts if real == read else {**facts, "parts": sorted({*facts["parts"], *real.split("/")}), "inside": False}


def real_path_facts(facts: Facts, workspace: Path, *, follows: bool = True) -> Facts | None:
    """The facts of the real path if a link leads elsewhere; None if the path has no links.

    `follows`: also resolve a final link, as every operation does except deletion, which deletes the link."""
    if not facts.get("inside"):
        return None
    folder, name = (facts["path"], "") if follows else os.path.split(facts["path"])
    try:
        if not _has_link(str(workspace), folder):
            return None
        root = real_path(workspace)
        real = os.path.join(real_path(os.path.join(root, folder)), name)
    except (OSError, ValueError):
        return None  # opening it will fail with the reason
    led = path_facts(real, Path(root))
    return None if led["path"] == facts["path"] else {**facts, **led}


def _has_link(root: str, path: str) -> bool:
    """Whether `path`, below `root`, contains a link. Links above the root are ignored."""
    here = root
    for part in path.split("/"):
        here = f"{here}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(here).st_mode):
                return True
        except OSError:
            return False  # it does not exist, so nothing below it does
    return False


def url_facts(value: Any, _workspace: Path) -> Facts:
    """Without user, password, query and fragment, which contain secrets and do not affect rules."""
    try:
        parts = urlsplit(str(value).strip())
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", _port(parts)
    except ValueError:
        return {"url": "", "scheme": "", "host": "", "address": "unknown"}
    host = plain_host(host)
    facts: Facts = {"scheme": scheme, "host": host}
    if port is not None:
        facts["port"] = port
    shown = f"[{host}]" if ":" in host else host
    place = shown if port in (None, _PORTS.get(scheme)) else f"{shown}:{port}"
    facts["url"] = f"{scheme}://{place}{parts.path or '/'}"[:LONGEST_TEXT]
    kind = address_kind(host)
    if kind is not None:
        facts["address"] = kind
    return facts


def plain_host(host: str) -> str:
    """A canonical host name: lower case, without the final dot, in ASCII; an address in its usual notation."""
    host = host.rstrip(".").lower()
    with contextlib.suppress(UnicodeError):
        host = host.encode("idna").decode().rstrip(".") if not host.isascii() else host  # other scripts have their own dots
    if host and host[0].isdigit():
        try:
            return socket.inet_ntoa(socket.inet_aton(host))  # also 127.1, 0x7f000001 and 2130706433, as the resolver reads them
        except (OSError, UnicodeError):
            return host
    return host


def address_kind(host: str) -> str | None:
    """The kind of a numeric address, as in the worker's own check; None for a name, which only the worker resolves."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "loopback" if host == "localhost" or host.endswith(".localhost") else None
    from remit.system.ip_addresses import classify_address  # rarely needed

    return classify_address(address)


def command_facts(value: Any, _workspace: Path) -> Facts:
    text = shlex.join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return {"command": text[:LONGEST_TEXT], "program": os.path.basename(words[0]) if words else ""}


def _language_facts(value: Any, _workspace: Path) -> Facts:
    return {"language": plain_name(str(value))[:100]}  # a rule on shell includes bash


_PARSERS: dict[str, Callable[[Any, Path], Facts]] = {
    Fact.PATH: path_facts,
    Fact.URL: url_facts,
    Fact.COMMAND: command_facts,
    Fact.LANGUAGE: _language_facts,
}


def _port(parts: SplitResult) -> int | None:
    return parts.port or _PORTS.get(parts.scheme.lower())


def _is_telling(name: str, value: Any, spec: AgentSpec) -> bool:
    """Whether it is a fact: numbers, booleans and enum values are; free text is the work itself."""
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -_LARGEST <= value <= _LARGEST
    if not isinstance(value, str) or len(value) > 100:
        return False
    return name == "method" or is_listed(spec.parameters_schema.get("properties", {}).get(name, {}))


def is_listed(schema: Mapping[str, Any]) -> bool:
    """Whether a parameter is an enum."""
    return "enum" in schema or "const" in schema or any(is_listed(one) for one in schema.get("anyOf", ()) if isinstance(one, Mapping))


def _simple(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, int) and -_LARGEST <= value <= _LARGEST):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [str(one)[:LONGEST_TEXT] for one in value][:1000]
    return str(value)[:LONGEST_TEXT]
