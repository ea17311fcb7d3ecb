"""How long a message may take (S5.8): `message_seconds`, unless a delegation inside it was given more. Then until that one has ended, at
the latest when it must, and the time it takes to answer. The engine's deadline stands behind it.
"""

import asyncio
from types import TracebackType

ANSWER_SECONDS = 60.0
"""At most so long, and never longer than a message may take, for the answer after a delegation that was given more."""


class MessageLimit:
    """`async with limit:` raises `TimeoutError` in its body's stead when the time is over."""

    def __init__(self, seconds: float, wall_seconds: float) -> None:
        """`wall_seconds`: until the engine's own deadline."""
        self.seconds = seconds
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self._until = self._began + seconds
        self._wall = self._began + max(0.0, wall_seconds)
        self._answer_seconds = min(ANSWER_SECONDS, seconds)
        self._running: dict[str, float] = {}
        """When each of the delegations that were given more must have ended, by its call."""
        self._timeout = asyncio.timeout_at(self._ends_at())

    async def __aenter__(self) -> "MessageLimit":
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._timeout.__aexit__(kind, error, trace)

    @property
    def is_over(self) -> bool:
        return self._timeout.expired()

    @property
    def elapsed(self) -> float:
        return self._now() - self._began

    @property
    def left(self) -> float:
        return self._ends_at() - self._now()

    def begun(self, call_id: str, given_seconds: float) -> None:
        """A delegation runs, which was given so long."""
        if given_seconds > self.seconds:
            self._running[call_id] = self._now() + given_seconds
            self._move()

    def ended(self, call_id: str) -> None:
        if self._running.pop(call_id, None) is not None:
            self._until = max(self._until, self._now() + self._answer_seconds)
            self._move()

    def _ends_at(self) -> float:
        return min(self._wall, max(self._until, *(end + self._answer_seconds for end in self._running.values()), 0.0))

    def _move(self) -> None:
        if not self._timeout.expired():
            self._timeout.reschedule(self._ends_at())
