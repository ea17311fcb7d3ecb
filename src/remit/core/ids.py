"""Session ids: `sess_{unix seconds}_{6 of [a-z0-9]}` (S1.1).

Made by the caller's side before anything runs, from a cryptographic source. The registry guarantees uniqueness
(`store`): here a clash is only unlikely.
"""

import os
import re
import time

SESSION_ID = re.compile(r"^sess_\d{8,}_[a-z0-9]{6}\Z")
"""Also accepts the older date form `sess_20251226_abc123` on read."""

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_SPACE = len(_ALPHABET) ** 6


def new_session_id(now: float | None = None) -> str:
    """A fresh id for the second `now` (wall clock)."""
    number = int.from_bytes(os.urandom(8), "little") % _SPACE
    number, low = divmod(number, 1296)
    high, middle = divmod(number, 1296)
    return f"sess_{int(time.time() if now is None else now)}_{_PAIRS[high]}{_PAIRS[middle]}{_PAIRS[low]}"


def is_session_id(text: object) -> bool:
    return isinstance(text, str) and SESSION_ID.match(text) is not None
