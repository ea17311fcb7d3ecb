"""How long a message may take (S5.8): `message_seconds`, unless a delegation inside it was given more. Then until that one has ended, at
the latest when it must, and the time it takes to answer. Shortly before, the model is told to answer with what it has. The engine's
deadline stands behind it.
"""

import asyncio
from types import TracebackType

from remit.agents.model.calling import Ending
from remit.core.deadline import grace_seconds

ANSWER_SECONDS = 60.0
"""At most so long, and never longer than a message may take, for the answer after a delegation that was given more."""


class MessageLimit:
    """`async with limit:` raises `TimeoutError` in its body's stead when the time is over."""

    def __init__(self, seconds: float, wall_seconds: float, engine: Ending) -> None:
        """`wall_seconds`: until the engine's own deadline; `engine`: when that is near."""
        self.seconds = seconds
        self._engine = engine
        self._grace = grace_seconds(seconds)
        self._moved = asyncio.Event()
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

    # ---- an `Ending`

    @property
    def hand_in(self) -> bool:
        return self._engine.hand_in or self.left <= self._grace

    @property
    def remaining(self) -> float:
        return max(0.0, self.left)

    async def wait_hand_in(self) -> None:
        told = asyncio.ensure_future(self._engine.wait_hand_in())
        moved = asyncio.ensure_future(self._moved.wait())
        try:
            while not self.hand_in:
                await asyncio.wait([told, moved], timeout=max(0.0, self.left - self._grace) + 0.001, return_when=asyncio.FIRST_COMPLETED)
                if moved.done():
                    self._moved.clear()
                    moved = asyncio.ensure_future(self._moved.wait())
        finally:
            for task in (told, moved):
                task.cancel()

    # ---- delegations that were given more

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
            self._moved.set()
