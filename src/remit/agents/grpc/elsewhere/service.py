"""`TaskService`: the calls of a task service elsewhere, one method each, in our own values and errors. Knows nothing of trying again.

No call has a deadline of gRPC's: a server may take that for the task's own. How long is waited is bounded here instead.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import grpc.aio

from remit.agents.grpc.elsewhere.connecting import Reach
from remit.agents.grpc.elsewhere.faults import Lost, error_of
from remit.agents.grpc.messages import chunk_of_message, result_of_task
from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.v1 import tasks_pb2_grpc as rpc
from remit.core.errors import Unavailable
from remit.core.redaction import Held, hold_secrets
from remit.runtime.tool.delegate_results import Chunk, DelegateResult

ANSWER_SECONDS = 10.0
"""So long one answer is waited for; a service that needs longer counts as lost for now."""
QUIET_SECONDS = 15.0
"""A stream that says nothing for so long is looked into: by a question of its own, on which a dead connection shows."""
Pairs = Sequence[tuple[str, str]]


class TaskService:
    def __init__(self, reach: Reach | None = None, channel: grpc.aio.Channel | None = None) -> None:
        """By an address, or over a channel of the caller's, which it closes itself."""
        if (reach is None) == (channel is None):
            raise TypeError("either where it is reached, or a channel")
        self._reach = reach
        self._given = channel
        self._channel = channel
        self._stub: Any = None
        self._held: Held | None = None
        """Our token, while it is in use: struck out of whatever is kept."""
        self.address = reach.address if reach is not None else "the task service"

    def _calls(self) -> Any:
        if self._stub is None:
            if self._channel is None:
                assert self._reach is not None
                self._channel = self._reach.open()
            self._stub = rpc.TaskServiceStub(self._channel)  # type: ignore[no-untyped-call]
        return self._stub

    def _metadata(self, more: Pairs) -> Pairs:
        shown = self._reach.metadata() if self._reach is not None else []
        if shown:
            self._held = hold_secrets({"authorization": shown[0][1]})
        return [*shown, *more]

    async def close(self) -> None:
        channel, self._stub = self._channel, None
        self._channel = self._given
        if channel is not None and self._given is None:
            await channel.close()

    # ---- calls that are answered once

    async def execute(self, request: pb.ExecuteTaskRequest, more: Pairs = ()) -> DelegateResult:
        answer: pb.ExecuteTaskResponse = await self._asked(lambda calls: calls.ExecuteTask, request, more)
        return result_of_task(answer.task)

    async def look(self, task_id: str, more: Pairs = ()) -> DelegateResult:
        request = pb.GetTaskStatusRequest(task_id=task_id)
        answer: pb.GetTaskStatusResponse = await self._asked(lambda calls: calls.GetTaskStatus, request, more)
        return result_of_task(answer.task)

    async def cancel(self, task_id: str, reason: str = "", *, force: bool = False, more: Pairs = ()) -> DelegateResult:
        """Answers when it has stopped."""
        request = pb.CancelTaskRequest(task_id=task_id, reason=reason[:1000], force=force)
        answer: pb.CancelTaskResponse = await self._asked(lambda calls: calls.CancelTask, request, more, 2 * ANSWER_SECONDS)
        return result_of_task(answer.task)

    async def agents(self, more: Pairs = ()) -> list[pb.AgentInfo]:
        answer: pb.ListAgentsResponse = await self._asked(lambda calls: calls.ListAgents, pb.ListAgentsRequest(), more)
        return list(answer.agents)

    async def _asked(self, method: Callable[[Any], Any], request: Any, more: Pairs, seconds: float = ANSWER_SECONDS) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await method(self._calls())(request, metadata=self._metadata(more))
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self.address) from None
        except grpc.aio.UsageError as error:
            raise Unavailable(f"The channel to {self.address} is closed: {error}.", advice="Open another one.") from None
        except TimeoutError:
            raise Lost(f"{self.address} did not answer within {seconds:g} s.", advice="Try again later.") from None

    # ---- streams

    def run(self, request: pb.ExecuteTaskRequest, more: Pairs = ()) -> AsyncGenerator[Chunk]:
        """Begins a task and streams it; the first chunk tells its id."""
        return self._heard(lambda calls: calls.RunTask, request, more)

    def stream(self, task_id: str, after: int = 0, more: Pairs = ()) -> AsyncGenerator[Chunk]:
        return self._heard(lambda calls: calls.StreamTask, pb.StreamTaskRequest(task_id=task_id, after=after), more)

    async def _heard(self, method: Callable[[Any], Any], request: Any, more: Pairs) -> AsyncGenerator[Chunk]:
        """Raises `Lost` when the connection breaks, or when nobody is there any more."""
        call: Any = None
        reading: asyncio.Task[Any] | None = None
        task_id = getattr(request, "task_id", "")
        try:
            call = method(self._calls())(request, metadata=self._metadata(more))
            while True:
                reading = asyncio.ensure_future(call.read())
                while not (await asyncio.wait((reading,), timeout=QUIET_SECONDS))[0]:
                    await self._still_there(task_id, more)
                message, reading = await reading, None
                if message is grpc.aio.EOF:
                    if await call.code() != grpc.StatusCode.OK:
                        await call  # raises what it ended with
                    return
                task_id = message.task_id or task_id
                if (chunk := chunk_of_message(message)) is not None:
                    yield chunk
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self.address) from None
        except grpc.aio.UsageError as error:
            raise Unavailable(f"The channel to {self.address} is closed: {error}.", advice="Open another one.") from None
        finally:
            if call is not None:
                call.cancel()
            if reading is not None:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError, grpc.aio.UsageError):
                    await reading

    async def _still_there(self, task_id: str, more: Pairs) -> None:
        """Raises `Lost`. Of one that has ended all the same the stream has been lost on its way, and is begun again."""
        if not task_id:
            raise Lost(f"{self.address} did not answer within {QUIET_SECONDS:g} s.", advice="Try again later.")
        if (await self.look(task_id, more)).task_state.is_terminal:
            raise Lost(f"{self.address} has not told the end of {task_id}.")
