"""Identifiers: session ids, caller tokens, and the trace and span ids of delegations.

A session id (`sess_{unix seconds}_{6 of [a-z0-9]}`) is drawn from a cryptographic source before anything runs; the store guarantees that it
is unique. A caller token lets a process that remit started delegate as a child of its delegation: it combines the session, a 256-bit secret
and the socket of the owner in one word. This module only defines the format; the attach server creates and checks tokens.

Trace and span ids (W3C Trace Context) are derived from session ids, so nothing needs to be stored. One tree is one trace across processes,
APIs and resumes: the trace of the caller's `traceparent`, else a hash of the root's session. The span of a delegation is a hash of its own
session. A tree has its own span above its root."""

import base64
import contextlib
import functools
import hashlib
import os
import re
import secrets
import struct
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from remit.core.errors import Refused

if TYPE_CHECKING:
    from remit.core.delegation import CallerInfo, Delegation, Origin

SESSION_ID = re.compile(r"^sess_[0-9]{8,}_[a-z0-9]{6}\Z")
"""Also accepts the older date form `sess_20251226_abc123` when reading."""

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
"""In code point order, so that larger numbers give later ids."""
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_SPACE = len(_ALPHABET) ** 6
_DRAWS = (16, 256, 4096)

_pool: list[str] = []
"""Id endings drawn ahead from the operating system's generator, largest first and used in rising order.

One generator call per id would be a fifth of a delegation's cost, and rising ids stay on the same page of the store's index, where
scattered ones would each touch another page."""
_drawn = 0


def _forget() -> None:
    """Clear the pool: a forked process must not draw the same ids as its parent."""
    global _drawn
    _pool.clear()
    _drawn = 0


os.register_at_fork(after_in_child=_forget)


def _draw() -> None:
    global _drawn
    count = _DRAWS[min(_drawn, len(_DRAWS) - 1)]  # few for a short program, many for a busy one
    _drawn += 1
    numbers = {number % _SPACE for (number,) in struct.iter_unpack("<Q", os.urandom(8 * count))}
    _pool.extend(
        _PAIRS[number // 1296**2] + _PAIRS[number // 1296 % 1296] + _PAIRS[number % 1296] for number in sorted(numbers, reverse=True)
    )


def new_session_id(now: float | None = None) -> str:
    """A new id for the second `now` (wall clock)."""
    if not _pool:
        _draw()
    return f"sess_{int(time.time() if now is None else now)}_{_pool.pop()}"


def is_session_id(text: object) -> bool:
    return isinstance(text, str) and SESSION_ID.match(text) is not None


# ---- caller tokens


CALLER = "REMIT_CALLER"
"""Environment variable. Not named *_TOKEN, because some agents hide such variables from their commands."""
REFUSED = "CALLER_REFUSED"
UNSET = f"Unset {CALLER} to delegate as a new root."

_VERSION = "remit1"
_SIGN = "rmtk_"
"""Prefix of every secret, so that it can be found in any text."""
_SECRET = re.compile(r"rmtk_[A-Za-z0-9_-]{43}")
_ANY_SECRET = re.compile(r"rmtk_[A-Za-z0-9_-]{43}|rmt_[A-Za-z0-9]{16,}|rmd_[A-Za-z0-9_-]{16,}")
"""Also tokens of API callers and of delegations, whole or cut off (`server.tokens`)."""
SHORTEST = 20
"""Length of the shortest secret; shorter text cannot contain one."""
_ANY_SECRET_BYTES = re.compile(_ANY_SECRET.pattern.encode())
_LONGEST = 16 * 1024


class CallerToken(NamedTuple):
    session_id: str
    secret: str
    address: str
    """Path of the owner's socket."""

    def encode(self) -> str:
        """One word of letters, digits, `.`, `_` and `-`, which every shell and file preserves."""
        address = base64.urlsafe_b64encode(self.address.encode("utf-8", "surrogateescape")).decode().rstrip("=")
        return f"{_VERSION}.{self.session_id}.{self.secret}.{address}"


def new_secret() -> str:
    return _SIGN + secrets.token_urlsafe(32)


def new_token(session_id: str, address: str) -> str:
    """An encoded token with a new secret."""
    return CallerToken(session_id, new_secret(), address).encode()


def decode(text: str) -> CallerToken:
    """Parse a token. Raises `Refused` for anything that `encode` did not produce."""
    parts = text.split(".") if len(text) <= _LONGEST else []
    if len(parts) == 4 and parts[0] == _VERSION and is_session_id(parts[1]) and _SECRET.fullmatch(parts[2]):
        with contextlib.suppress(ValueError):
            address = base64.urlsafe_b64decode(parts[3] + "=" * (-len(parts[3]) % 4)).decode("utf-8", "surrogateescape")
            token = CallerToken(parts[1], parts[2], address)
            # one spelling per token: an altered token never equals another
            if token.encode() == text and address.startswith("/") and "\0" not in address:
                return token
    raise Refused(f"{CALLER} is not a valid token: it was altered.", code=REFUSED, advice=UNSET)


def redact_tokens(text: str) -> str:
    """`text` without secrets. The search for a single character comes first: it is by far the cheapest."""
    is_likely = "_" in text and ("rmtk_" in text or "rmt_" in text or "rmd_" in text)
    return _ANY_SECRET.sub("[token]", text) if is_likely else text


def redact_token_bytes(data: bytes) -> bytes:
    return _ANY_SECRET_BYTES.sub(b"[token]", data) if b"rmtk_" in data or b"rmt_" in data or b"rmd_" in data else data


# ---- traces


TRACEPARENT_HEADER = "traceparent"
"""Name in HTTP headers, gRPC metadata and MCP's `_meta`."""
TRACEPARENT = "TRACEPARENT"
"""Name of the environment variable."""
SAMPLED = 0x01
_TRACEPARENT = r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.{0,200})?"
_KNOWN_FLAGS = 0x03
"""Sampled, and (level 2) random. Other flags are undefined and not forwarded."""


class Traceparent(NamedTuple):
    trace_id: str
    """32 lower-case hexadecimal digits, not all zero."""
    span_id: str
    """16 lower-case hexadecimal digits."""
    flags: int = SAMPLED

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags & _KNOWN_FLAGS:02x}"


def parse_traceparent(text: object) -> Traceparent | None:
    """Parse a `traceparent`; None if it is missing or invalid. Later versions are parsed like this one."""
    found = re.fullmatch(_TRACEPARENT, text, re.ASCII) if isinstance(text, str) else None
    if found is None or (found[1] == "00" and found[5]):
        return None
    return Traceparent(found[2], found[3], int(found[4], 16) & _KNOWN_FLAGS)


def span_id_of(session_id: str) -> str:
    """Span id of a delegation."""
    return _digest("span", session_id, 8)


def caller_span(caller_info: "CallerInfo | None") -> Traceparent | None:
    """The span of the external caller, if it sent one."""
    return None if caller_info is None else parse_traceparent(caller_info.traceparent)


def _span(root_id: str, caller_info: "CallerInfo | None", span_id: str) -> Traceparent:
    """A span in the trace of a tree: its caller's, else its own."""
    given = caller_span(caller_info)
    return Traceparent(_digest("trace", root_id, 16), span_id) if given is None else given._replace(span_id=span_id)


def span_of(delegation: "Delegation") -> Traceparent:
    """The span of a delegation."""
    lineage = delegation.lineage
    return _span(lineage.root_id, delegation.caller_info, span_id_of(lineage.session_id))


def parent_span_of(delegation: "Delegation") -> Traceparent | None:
    """The parent span of a delegation: its caller's; for a root, the one that the external caller sent."""
    lineage = delegation.lineage
    if lineage.parent_id is None:
        return caller_span(delegation.caller_info)
    return _span(lineage.root_id, delegation.caller_info, span_id_of(lineage.parent_id))


def traceparent_of(delegation: "Delegation") -> str:
    """The value sent to the agent's process or remote executor, whose spans become children."""
    return str(span_of(delegation))


def origin_in(environment: Mapping[str, str]) -> "Origin | None":
    """The span of the program that started this one (`TRACEPARENT`), the parent of new trees; None: it sent none."""
    given = parse_traceparent(environment.get(TRACEPARENT, "").strip())
    if given is None:
        return None
    from remit.core.delegation import ROOT_CALLER, CallerInfo, Origin

    return Origin(caller_info=CallerInfo(ROOT_CALLER, traceparent=str(given)))


@functools.lru_cache(maxsize=1024)  # needed at its start and again at its end
def _digest(what: str, name: str, size: int) -> str:
    """A well-distributed hash; neither a secret nor a signature."""
    found = hashlib.blake2b(f"remit {what} {name}".encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
    return found if int(found, 16) else f"{1:0{2 * size}x}"
