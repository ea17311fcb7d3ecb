"""Session ids: `sess_{unix seconds}_{6 of [a-z0-9]}`.

Made by the caller's side before anything runs, from a cryptographic source. The registry guarantees uniqueness
(`store`): here a clash is only unlikely.
"""

import os
import re
import time

SESSION_ID = re.compile(r"^sess_[0-9]{8,}_[a-z0-9]{6}\Z")
"""Also accepts the older date form `sess_20251226_abc123` on read."""

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
"""In the order of their codes, so that larger numbers give later ids."""
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_SPACE = len(_ALPHABET) ** 6
_DRAW_BYTES = 8
_DRAWS = (16, 256, 4096)

_pool: list[int] = []
"""Numbers drawn ahead from the operating system's generator, largest first: handed out in rising order.

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


def _draw() -> int:
    global _drawn
    try:
        return _pool.pop()
    except IndexError:
        count = _DRAWS[min(_drawn, len(_DRAWS) - 1)]  # few for a short program, many for a busy one
        _drawn += 1
        fresh = os.urandom(_DRAW_BYTES * count)
        numbers = {int.from_bytes(fresh[at : at + _DRAW_BYTES], "little") % _SPACE for at in range(0, len(fresh), _DRAW_BYTES)}
        first, *rest = sorted(numbers)
        _pool.extend(reversed(rest))
        return first


def new_session_id(now: float | None = None) -> str:
    """A fresh id for the second `now` (wall clock)."""
    number, low = divmod(_draw(), 1296)
    high, middle = divmod(number, 1296)
    return f"sess_{int(time.time() if now is None else now)}_{_PAIRS[high]}{_PAIRS[middle]}{_PAIRS[low]}"


def is_session_id(text: object) -> bool:
    return isinstance(text, str) and SESSION_ID.match(text) is not None
