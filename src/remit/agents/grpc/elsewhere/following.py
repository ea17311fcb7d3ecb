"""One task elsewhere, begun once and followed to its end, whatever becomes of the connection meanwhile.

Streaming first. Each request carries a key, so that one whose answer was lost can be sent again and is not run twice; a stream that breaks
is taken up after the last chunk that was heard; where streams do not get through, the state is asked for each half second, with the same
result at the end. Never waits beyond `until`.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from remit.agents.grpc.elsewhere.faults import UNIMPLEMENTED, Lost
from remit.agents.grpc.elsewhere.service import Pairs, TaskService
from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.core.errors import RemitError, Unavailable
from remit.runtime.tool.delegate_results import Chunk, DelegateResult, begun, ended

POLL_SECONDS = 0.5
FAILING_STREAMS = 3
"""After so many in a row that told nothing, though the service answers, streams are given up."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class GaveUp(Unavailable):
    """Not ended, or not heard of, in the time there was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    request: pb.ExecuteTaskRequest
    """With a key in its config."""
    until: float
    """Monotonic: then nobody waits any longer."""
    reach_seconds: float = 5.0
    """So long a service that cannot be reached is tried before the task is known to have begun."""
    is_streamed: bool = True
    poll_seconds: float = POLL_SECONDS
    more: Callable[[], Pairs] = tuple
    """Further metadata, as it is when a call is made."""


class Following:
    """Of one errand. `async for chunk in following.chunks()`: the last one has the result."""

    def __init__(self, service: TaskService, errand: Errand) -> None:
        self._service = service
        self._errand = errand
        self.task_id: str | None = None
        """Known from the first answer on."""
        self._after = 0
        self._streams = errand.is_streamed
        self._failures = 0
        """In a row, with nothing heard between them."""
        self._failing_since: float | None = None
        self._tried_at = 0.0
        self._has_told = False
        self.is_over = False
        """Its end was told."""

    async def chunks(self) -> AsyncGenerator[Chunk]:
        """Raises `GaveUp` at the end of the time, `Unavailable` where it could not be begun, and what the service refuses it with."""
        while True:
            self._tried_at = time.monotonic()
            try:
                async with aclosing(self._streamed() if self._streams else self._polled()) as source:
                    while (chunk := await self._next(source)) is not None:
                        if chunk.result is not None and not chunk.result.task_state.is_terminal:
                            self.task_id = chunk.task_id or chunk.result.task_id or self.task_id
                            raise Lost(f"{self._service.address} told an end that is none: {chunk.result.task_state}.")
                        self.is_over = chunk.result is not None
                        if (told := self._heard(chunk)) is not None:
                            yield told
                        if self.is_over:
                            return
                raise Lost(f"{self._service.address} ended the stream too early.")
            except RemitError as error:
                await self._again_after(error)

    async def _next(self, source: AsyncGenerator[Chunk]) -> Chunk | None:
        """Bounded each by itself: whoever reads the chunks takes its own time between them."""
        left = self._errand.until - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, left)):
                return await anext(source, None)
        except TimeoutError:
            raise self._gave_up() from None

    def _streamed(self) -> AsyncGenerator[Chunk]:
        more = self._errand.more()
        if self.task_id is None:
            return self._service.run(self._errand.request, more)
        return self._service.stream(self.task_id, self._after, more)

    async def _polled(self) -> AsyncGenerator[Chunk]:
        if self.task_id is None:
            result = await self._service.execute(self._errand.request, self._errand.more())
            yield _as_it_stands(result)
        else:
            result = await self._service.look(self.task_id, self._errand.more())
            yield _as_it_stands(result)
        while not result.task_state.is_terminal:
            await asyncio.sleep(self._errand.poll_seconds)
            result = await self._service.look(result.task_id or "", self._errand.more())
            yield _as_it_stands(result)

    def _heard(self, chunk: Chunk) -> Chunk | None:
        """What is new of it."""
        self._failures, self._failing_since = 0, None
        self.task_id = chunk.task_id or self.task_id
        if chunk.number:
            if chunk.number <= self._after and chunk.result is None:
                return None
            self._after = max(self._after, chunk.number)
        elif chunk.result is None and self._has_told:  # that it has begun, once more
            return None
        self._has_told = True
        return chunk

    async def _again_after(self, error: RemitError) -> None:
        """Wait a moment before the next try, or raise what there is no trying again for."""
        now = time.monotonic()
        if error.code == UNIMPLEMENTED and self._streams:
            self._streams = False
            return
        if not isinstance(error, Lost):
            raise error
        self._failures += 1
        # Since it was asked, not since it failed to answer: one that takes connections and says nothing is not there either.
        self._failing_since = self._tried_at if self._failing_since is None else self._failing_since
        if self.task_id is None and now - self._failing_since >= self._errand.reach_seconds:
            raise error
        if self._streams and self.task_id is not None and self._failures >= FAILING_STREAMS:
            self._streams = False
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures - 1, 10)) * random.uniform(0.7, 1.3)
        pause = max(pause, error.retry_after or 0.0)
        if now + pause >= self._errand.until:
            raise self._gave_up(error)
        await asyncio.sleep(pause)

    async def give_back(self, reason: str) -> None:
        """Have it stopped there. Where it was sent and its first answer has not come yet, it is asked for by its key, which begins nothing
        twice; where it was lost on the way it may never have arrived, and is left to its own deadline."""
        if self.is_over:
            return
        if self.task_id is None and self._tried_at and self._failing_since is None:
            self.task_id = (await self._service.execute(self._errand.request, self._errand.more())).task_id
        if self.task_id:
            await self._service.cancel(self.task_id, reason)

    def _gave_up(self, last: RemitError | None = None) -> GaveUp:
        why = f" The last that was heard: {last.message}" if last is not None else ""
        if self.task_id is None:
            return GaveUp(f"{self._service.address} was not reached in time.{why}", advice="Is it running? `remit serve` starts one.")
        advice = f"It may still be running there; ask for task {self.task_id}."
        return GaveUp(f"{self._service.address} has not told the end of {self.task_id} in time.{why}", code="TIMEOUT", advice=advice)


def _as_it_stands(result: DelegateResult) -> Chunk:
    return ended(result) if result.task_state.is_terminal else begun(result.task_id or "", result.metadata.agent_id)
