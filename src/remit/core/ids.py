"""Identifiers: session ids and caller tokens.

A session id (`sess_{unix seconds}_{6 of [a-z0-9]}`) is drawn from a cryptographic source before anything runs; the store guarantees that it
is unique. A caller token lets a process that remit started delegate as a child of its delegation: the session, a secret of 256 bits and the
socket of its owner, in one word. Only the format is here; the attach server makes and checks tokens.
"""

import base64
import binascii
import os
import re
import secrets
import struct
import time
from typing import NamedTuple

from remit.core.errors import Refused

SESSION_ID = re.compile(r"^sess_[0-9]{8,}_[a-z0-9]{6}\Z")
"""Also accepts the older date form `sess_20251226_abc123` on read."""

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
"""In the order of their codes, so that larger numbers give later ids."""
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_SPACE = len(_ALPHABET) ** 6
_DRAWS = (16, 256, 4096)

_pool: list[str] = []
"""Endings of ids, drawn ahead from the operating system's generator, largest first: handed out in rising order.

One call of the generator for each id would be a fifth of a delegation's cost; and ids that rise keep the store's index of them
together, where scattered ones touch another page of it each.
"""
_drawn = 0


def _forget() -> None:
    """A forked process must not draw what its parent will draw."""
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
    """A fresh id for the second `now` (wall clock)."""
    if not _pool:
        _draw()
    return f"sess_{int(time.time() if now is None else now)}_{_pool.pop()}"


def is_session_id(text: object) -> bool:
    return isinstance(text, str) and SESSION_ID.match(text) is not None


# ---- caller tokens


CALLER = "REMIT_CALLER"
"""The environment variable. Not *_TOKEN: some agents keep such names from the commands they start."""
REFUSED = "CALLER_REFUSED"
UNSET = f"Unset {CALLER} to delegate as a new root."

_VERSION = "remit1"
_SIGN = "rmtk_"
"""What every secret begins with, so that it is found in any text."""
_SECRET = re.compile(r"rmtk_[A-Za-z0-9_-]{43}")
_ANY_SECRET = re.compile(r"rmtk_[A-Za-z0-9_-]{43}|rmt_[A-Za-z0-9]{16,}|rmd_[A-Za-z0-9_-]{16,}")
"""Also the tokens of API callers and of delegations, whole or cut off (`server.tokens`)."""
SHORTEST = 20
"""Characters of the shortest one: a shorter text cannot contain it."""
_ANY_SECRET_BYTES = re.compile(_ANY_SECRET.pattern.encode())
_LONGEST = 16 * 1024


class CallerToken(NamedTuple):
    session_id: str
    secret: str
    address: str
    """The path of the socket at which its owner listens."""

    def encode(self) -> str:
        """One word of letters, digits, `.`, `_` and `-`: it survives every shell and every file."""
        address = base64.urlsafe_b64encode(self.address.encode("utf-8", "surrogateescape")).decode().rstrip("=")
        return f"{_VERSION}.{self.session_id}.{self.secret}.{address}"


def new_secret() -> str:
    return _SIGN + secrets.token_urlsafe(32)


def new_token(session_id: str, address: str) -> str:
    """A token with a new secret, encoded."""
    return CallerToken(session_id, new_secret(), address).encode()


def decode(text: str) -> CallerToken:
    """Raises `Refused` for whatever `encode` did not make."""
    parts = text.split(".") if len(text) <= _LONGEST else []
    if len(parts) != 4 or parts[0] != _VERSION or not is_session_id(parts[1]) or not _SECRET.fullmatch(parts[2]):
        raise _not_a_token()
    try:
        address = _address(parts[3])
    except (ValueError, binascii.Error):
        raise _not_a_token() from None
    return CallerToken(parts[1], parts[2], address)


def _address(word: str) -> str:
    held = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
    address = held.decode("utf-8", "surrogateescape")
    again = base64.urlsafe_b64encode(held).decode().rstrip("=")
    if not address.startswith("/") or "\0" in address or again != word:  # one spelling each: an altered token is never the same one
        raise ValueError(word)
    return address


def _not_a_token() -> Refused:
    return Refused(f"{CALLER} is not a valid token: it was altered.", code=REFUSED, advice=UNSET)


def redact_tokens(text: str) -> str:
    """`text` without secrets. A few cheap searches where there are none: the first, for one character, is much the cheapest."""
    is_likely = "_" in text and ("rmtk_" in text or "rmt_" in text or "rmd_" in text)
    return _ANY_SECRET.sub("[token]", text) if is_likely else text


def redact_token_bytes(data: bytes) -> bytes:
    return _ANY_SECRET_BYTES.sub(b"[token]", data) if b"rmtk_" in data or b"rmt_" in data or b"rmd_" in data else data
