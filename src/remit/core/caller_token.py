"""The caller's token: it shows whose child the delegations of a process are that remit started.

One word, made for one running delegation and known to its owner's memory alone: the session, a secret of 256 bits, and where the owner
listens. This is the format; `agents.attach_server` makes, checks and refuses tokens. Also how secrets are removed from text that is kept:
a token in what an agent prints or hands back is worth nothing to a reader.
"""

import base64
import binascii
import re
import secrets
from typing import NamedTuple

from remit.core.errors import Refused
from remit.core.ids import is_session_id

CALLER = "REMIT_CALLER"
"""The environment variable. Not *_TOKEN: some agents keep such names from the commands they start."""
REFUSED = "CALLER_REFUSED"
UNSET = f"Unset {CALLER} to delegate as a new root."

_VERSION = "remit1"
_SIGN = "rmtk_"
"""What every secret begins with, so that it is found in any text."""
_SECRET = re.compile(r"rmtk_[A-Za-z0-9_-]{43}")
_ANY_SECRET = re.compile(r"rmtk_[A-Za-z0-9_-]{43}|rmt_[A-Za-z0-9]{16,}|rmd_[A-Za-z0-9_-]{16,}")
"""Also the tokens that let somebody in from outside, whole or cut off (`access.tokens`, `access.delegation_tokens`)."""
SHORTEST = 20
"""Characters of the shortest that is struck out: a shorter text holds none."""
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
