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
_DRAW_BYTES = 8

_pool: list[bytes] = []
"""Bytes of the operating system's generator, fetched for many ids at once: one call each would be a fifth of a delegation's cost."""
os.register_at_fork(after_in_child=_pool.clear)  # a forked process must not draw what its parent will draw


def _draw() -> int:
    if not _pool:
        fresh = os.urandom(_DRAW_BYTES * 256)
        _pool.extend(fresh[at : at + _DRAW_BYTES] for at in range(0, len(fresh), _DRAW_BYTES))
    try:
        return int.from_bytes(_pool.pop(), "little")
    except IndexError:  # another thread took the last
        return int.from_bytes(os.urandom(_DRAW_BYTES), "little")


def new_session_id(now: float | None = None) -> str:
    """A fresh id for the second `now` (wall clock)."""
    number = _draw() % _SPACE
    number, low = divmod(number, 1296)
    high, middle = divmod(number, 1296)
    return f"sess_{int(time.time() if now is None else now)}_{_PAIRS[high]}{_PAIRS[middle]}{_PAIRS[low]}"


def is_session_id(text: object) -> bool:
    return isinstance(text, str) and SESSION_ID.match(text) is not None
