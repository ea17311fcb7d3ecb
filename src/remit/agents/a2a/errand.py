"""One delegation carried out elsewhere: its message sent, its task followed to its end, over however many connections that takes.

Streamed where the other side can, polled where it cannot. A lost connection loses nothing: the task goes on there, and is taken up again
here by its id, which is in the checkpoint from the first moment. A message is sent a second time only where that cannot run it twice.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import httpx
from a2a.client import A2AClientError, ClientCallContext
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
)
from a2a.utils.errors import A2AError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import ParseError
from google.protobuf.message import DecodeError

from remit.agents.a2a.answer import answer_of
from remit.agents.a2a.faults import error_of, may_pass, retry_after
from remit.agents.a2a.gathered import ASKS, ENDED, FAILED, Gathered
from remit.agents.a2a.message import MODES, message_of
from remit.agents.a2a.reaching import Line, Remote
from remit.agents.definition import Definition
from remit.core.errors import RemitError, Unavailable
from remit.core.tracing import HEADER as TRACEPARENT
from remit.core.tracing import traceparent_of
from remit.flow.context import Context
from remit.proto.extension import EXTENSION, HEADER

KIND = "a2a"
POLL_SECONDS = (0.5, 5.0)
"""Between two looks: at first, and at most."""
LOST_SECONDS = 60.0
"""One that cannot be reached for so long is given up."""
CALL_SECONDS = 30.0
CANCEL_SECONDS = 10.0


class Errand:
    def __init__(self, line: Line, definition: Definition, ctx: Context, arguments: Mapping[str, Any]) -> None:
        self._line = line
        self._definition = definition
        self._ctx = ctx
        self._arguments = arguments
        self._gathered = Gathered(ctx, is_remit=line.is_remit)
        self._sent: Message | None = None
        self._lost_at: float | None = None
        self._pause = POLL_SECONDS[0]
        self._turn = self._next_turn()
        self._parameters = {HEADER: EXTENSION} if line.is_remit else {}
        self._parameters[TRACEPARENT] = traceparent_of(ctx._desk.delegation)
        if (token := line.http.headers.get("authorization")) is not None:
            self._parameters["authorization"] = token

    @property
    def is_left(self) -> bool:
        """Something of it may still run over there."""
        return (self._sent is not None or self._gathered.task is not None) and not self._gathered.is_over

    async def done(self) -> Any:
        """Its answer, as a return."""
        try:
            before = await self._before()
            if not self._gathered.is_over:
                if before is None or self._gathered.task is None:
                    await self._send(before)
                await self._followed()
        except A2AError as error:
            raise error_of(error, self._line.address) from None
        return await answer_of(self._gathered, self._definition, self._ctx)

    # ---- where it was before

    async def _before(self) -> Task | None:
        """The task that this goes on with: of the same delegation, run again, or of the one that it resumes. It may still be running."""
        saved = self._ctx.saved
        if not isinstance(saved, Mapping) or saved.get("kind") != KIND or saved.get("address") != self._line.address:
            return None
        try:
            task = await self._get(str(saved.get("task_id")))
        except (TaskNotFoundError, UnsupportedOperationError):
            return None
        is_same = saved.get("session_id") == self._ctx.session_id
        if task.status.state not in ENDED | ASKS or (is_same and task.status.state not in FAILED):
            self._gathered.replace(task)  # it runs there still, or ended while nobody was here
            await self._keep(task)
        return task

    # ---- sending

    async def _send(self, before: Task | None) -> None:
        """Until a task, or an answer, has come back."""
        message = message_of(self._line, self._definition, self._ctx, self._arguments, before, turn=self._turn)
        configuration = SendMessageConfiguration(accepted_output_modes=MODES, return_immediately=not self._line.streams)
        request = SendMessageRequest(message=message, configuration=configuration)
        self._sent = message
        while True:
            try:
                await self._taken(self._line.client.send_message(request, context=self._call(stream=self._line.streams)))
            except A2AError as error:
                if self._gathered.task is not None:
                    self._lose(error)
                    return
                if not (self._line.is_remit or _never_arrived(error)) or not may_pass(error):
                    raise
                await self._wait(error)
            else:
                if self._gathered.task is not None or self._gathered.message is not None:
                    return
                await self._wait(A2AClientError("it answered nothing"))

    def _next_turn(self) -> int:
        """A second try of one delegation is another message: the first one was answered with its failure."""
        saved = self._ctx.saved
        is_again = isinstance(saved, Mapping) and saved.get("kind") == KIND and saved.get("session_id") == self._ctx.session_id
        return int(saved.get("turn", 0)) + 1 if is_again else 0

    async def _taken(self, events: AsyncIterator[StreamResponse]) -> None:
        try:
            async for event in _each(events):
                self._lost_at, self._pause = None, POLL_SECONDS[0]
                is_first = self._gathered.task is None
                self._gathered.take(event)
                if is_first and self._gathered.task is not None:
                    await self._keep(self._gathered.task)
                if self._gathered.is_over:
                    return
        finally:
            if (close := getattr(events, "aclose", None)) is not None:
                await close()

    async def _keep(self, task: Task) -> None:
        await self._ctx.checkpoint(
            {
                "kind": KIND,
                "address": self._line.address,
                "task_id": task.id,
                "context_id": task.context_id,
                "session_id": self._ctx.session_id,
                "turn": self._turn,
            }
        )

    # ---- following

    async def _followed(self) -> None:
        """To its end. What was said while nobody listened is missing in between, never at the end: that is fetched whole."""
        while not self._gathered.is_over:
            task = self._gathered.task
            assert task is not None
            try:
                if self._line.streams:
                    await self._subscribed(task.id)
                if not self._gathered.is_over:
                    self._gathered.replace(await self._get(task.id))
                    self._gathered.was_lost = False
                self._lost_at = None
                if not self._gathered.is_over:
                    await self._rest()
            except A2AError as error:
                self._lose(error)
                await self._wait(error)
        if self._gathered.was_lost and self._gathered.task is not None:
            with contextlib.suppress(A2AError):  # what was heard of it is there all the same
                self._gathered.replace(await self._get(self._gathered.task.id))

    async def _subscribed(self, task_id: str) -> None:
        """Ends when the task does, or the connection."""
        self._gathered.was_lost = True
        try:
            await self._taken(self._line.client.subscribe(SubscribeToTaskRequest(id=task_id), context=self._call(stream=True)))
        except UnsupportedOperationError:
            return  # it has ended meanwhile, or cannot do that: it is looked at instead

    async def _get(self, task_id: str) -> Task:
        with _understood():
            task: Task = await self._line.client.get_task(GetTaskRequest(id=task_id), context=self._call())
        return task

    # ---- losing it

    def _lose(self, error: A2AError) -> None:
        """Raises it, where waiting does not help."""
        self._gathered.was_lost = True
        if not may_pass(error):
            raise error

    async def _wait(self, error: A2AError) -> None:
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
            self._ctx.progress(f"The connection to {self._line.address} was lost; trying again.")
        if now - self._lost_at > LOST_SECONDS:
            raise Unavailable(f"{self._line.address} could not be reached for {LOST_SECONDS:g} s: {error.message}"[:500])
        await self._rest(retry_after(error))

    async def _rest(self, seconds: float | None = None) -> None:
        await asyncio.sleep(self._pause if seconds is None else seconds)
        self._pause = min(POLL_SECONDS[1], 1.5 * self._pause)

    def _call(self, *, stream: bool = False) -> ClientCallContext:
        return ClientCallContext(service_parameters=dict(self._parameters), timeout=None if stream else CALL_SECONDS)

    # ---- ending it

    async def cancelled(self, remote: Remote, token: str | None) -> None:
        """Stop it there too, over a connection of its own: this one's errand is over. Whatever goes wrong, nobody waits for it."""
        try:
            async with asyncio.timeout(CANCEL_SECONDS), await remote.open(token) as line:
                task_id = self._gathered.task.id if self._gathered.task is not None else await self._found_out(line)
                if task_id is not None:
                    await line.client.cancel_task(CancelTaskRequest(id=task_id), context=self._call())
        except (A2AError, RemitError, TimeoutError, httpx.HTTPError):
            return  # it has ended there, or nobody is there: its own deadline, which it was told, ends it

    async def _found_out(self, line: Line) -> str | None:
        """The task of a message whose answer had not come yet: a remit tells it again, to the same message."""
        if not line.is_remit or self._sent is None:
            return None
        request = SendMessageRequest(message=self._sent, configuration=SendMessageConfiguration(return_immediately=True))
        async for event in line.client.send_message(request, context=self._call()):
            if event.HasField("task"):
                return event.task.id
        return None


async def _each(events: AsyncIterator[StreamResponse]) -> AsyncIterator[StreamResponse]:
    while True:
        with _understood():
            try:
                event = await anext(events)
            except StopAsyncIteration:
                return
        yield event


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """What the SDK makes of answers that are none: it looks into them before it looks at them."""
    try:
        yield
    except (ParseError, DecodeError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise A2AClientError(f"It answers what cannot be understood: {type(error).__name__}: {error}"[:400]) from None


def _never_arrived(error: A2AError) -> bool:
    return isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
