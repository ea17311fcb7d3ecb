"""The circuit breaker: a model that failed several times in a row is passed over for a while, then tried by one caller.

One for the process, by what is reached and not by what it is called, so that two projects learn from one another. Never leaves nobody:
when all are open, the one due soonest is tried. Used by `asking`.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

FAILURES = 3
"""In a row; then it is passed over."""
PAUSE_SECONDS = 30.0
_MOST = 1000

T = TypeVar("T")


@dataclass(slots=True)
class _State:
    failures: int = 0
    due: float = 0.0
    """When it may be tried again; by a clock that does not jump."""


class Breakers:
    """Called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._states: dict[str, _State] = {}
        self._lock = threading.Lock()
        self._clock = clock

    def in_order(self, models: Sequence[T], key: Callable[[T], str]) -> tuple[list[T], list[T]]:
        """Those to try, in order, and those that are passed over."""
        now = self._clock()
        with self._lock:
            due = {key(model): self._due(key(model)) for model in models}
            ready = [model for model in models if due[key(model)] <= now] or sorted(models, key=lambda one: due[key(one)])[:1]
        return ready, [model for model in models if model not in ready]

    def begins(self, key: str, *, is_only: bool) -> bool:
        """Whether whoever comes to it now may try it: when its pause is over the first who asks may, and whoever has nobody else."""
        now = self._clock()
        with self._lock:
            state = self._states.get(key)
            if state is None or state.failures < FAILURES:
                return True
            if state.due > now and not is_only:
                return False
            state.due = now + PAUSE_SECONDS  # whoever asks meanwhile does not wait for the same answer
            return True

    def failed(self, key: str) -> None:
        with self._lock:
            if len(self._states) >= _MOST:
                self._states.clear()
            state = self._states.setdefault(key, _State())
            state.failures += 1
            if state.failures >= FAILURES:
                state.due = self._clock() + PAUSE_SECONDS

    def answered(self, key: str) -> None:
        with self._lock:
            self._states.pop(key, None)

    def pause(self, key: str) -> float:
        """For how many seconds it is still passed over; 0: it is not."""
        with self._lock:
            return max(0.0, self._due(key) - self._clock())

    def _due(self, key: str) -> float:
        state = self._states.get(key)
        return state.due if state is not None and state.failures >= FAILURES else 0.0


BREAKERS = Breakers()
