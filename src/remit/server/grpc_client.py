"""`Client`: delegate to any agent of a running `remit serve`, over gRPC. Needs `pip install "remit[grpc]"` and no project of its own.

    async with Client("unix:/path/to/project/.remit/run/grpc.sock") as client:
        result = await client.delegate("worker", "read_file", {"path": "README.md"})

A request is one of the delegate tool. The server checks it: a faulty one raises `DelegateError`, an unauthenticated one `Refused`.
Everything else is a `DelegateResult`, also when the server cannot be reached.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from remit.core.delegate_results import Chunk, DelegateResult, TaskState, final_chunk, result_of_error
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.states import Priority
from remit.server.addresses import announced
from remit.server.http.models import TaskRequest, validated
from remit.server.tokens import local_token
from remit.system.ownership import owner_fault

if TYPE_CHECKING:
    import grpc.aio

    from remit.agents.proto.v1 import tasks_pb2 as pb
    from remit.server.grpc.task_client import RemoteTask, TaskService


CANCEL_SECONDS = 2.0
"""How long a cancelled call waits until its task is cancelled, too."""
MAX_WAIT_SECONDS = 14_400.0
"""How long to wait for a request without a timeout; the server applies its own default long before."""


class ServerAddress(NamedTuple):
    address: str
    """`unix:/path` or `host:port`."""
    token: str | None
    """The owner's token; None for a Unix socket, which only the owner can open."""


def discover(root: str | Path = ".") -> ServerAddress:
    """The running server of the project at `root` or above it. Raises `Unavailable` if there is none with gRPC."""
    here = Path(root).resolve()
    for folder in (here, *here.parents):
        run = folder / ".remit" / "run"
        found = None if owner_fault(folder) else announced(run)  # another user may create such a folder above ours, as in /tmp
        if found is not None and found.grpc is not None:
            return ServerAddress(found.grpc, None if found.grpc.startswith("unix:") else local_token(folder / ".remit"))
    raise Unavailable(f"No server of a project at or above {here} takes gRPC.", advice="Start one there: remit serve")


class Client:
    def __init__(
        self,
        address: "str | grpc.aio.Channel | None" = None,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        streaming: bool = True,
        poll_seconds: float = 0.5,
        connect_seconds: float = 5.0,
        grace_seconds: float = 5.0,
    ) -> None:
        """`address`: `unix:/path`, `host:port`, a channel of `grpc.aio`, or None for the server of the project here (`discover`).

        `token`: made by `remit token new`; `ca_file`: the authority of the server's certificate. Without `streaming` the state is polled;
        the result is the same. A server that cannot be reached is tried for `connect_seconds`; a task that does not end within its timeout
        and `grace_seconds` is TASK_TIMEOUT, whatever the server does.
        """
        try:
            import remit.server.grpc.task_client  # noqa: F401
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{error.name} is not installed: pip install 'remit[grpc]'", name=error.name) from None
        if address is None:
            found = discover()
            address, token = found.address, token or found.token
        if not isinstance(address, str) and (token or ca_file):
            raise Misused("A channel has its own credentials.", advice="Pass an address with them, or the channel alone.")
        self._address, self._token, self._ca_file = address, token, ca_file
        self._channel: grpc.aio.Channel | None = None
        self._connected: TaskService | None = None
        for name, seconds in (("poll_seconds", poll_seconds), ("connect_seconds", connect_seconds), ("grace_seconds", grace_seconds)):
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < MAX_WAIT_SECONDS:
                raise Misused(f"{name} must be a positive number of seconds, not {seconds!r:.60}.")
        self._streaming, self._poll_seconds = streaming, poll_seconds
        self._connect_seconds, self._grace_seconds = connect_seconds, grace_seconds
        self._cancelling: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Running tasks go on and are found again by their ids."""
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=CANCEL_SECONDS)
        channel, self._channel, self._connected = self._channel, None, None
        if channel is not None:
            await channel.close()

    @property
    def _service(self) -> "TaskService":
        """Connected on first use: a channel belongs to an event loop."""
        if self._connected is None:
            from remit.server.grpc.task_client import TaskService, channel_to

            if isinstance(self._address, str):
                self._channel = channel_to(self._address, self._ca_file)
                self._connected = TaskService(self._channel, self._address, self._token)
            else:
                self._connected = TaskService(self._address)
        return self._connected

    async def delegate(
        self, target: str, operation: str | None = None, parameters: Mapping[str, Any] | None = None, **more: Any
    ) -> DelegateResult:
        """Run a task and return its result. Cancelling the call cancels the task.

        `more`: `timeout` in milliseconds, `priority`, `session_id` (a conversation of the caller's), `key`, `accept`, `budget`, `resume`,
        `idle` in milliseconds.
        """
        async with contextlib.aclosing(self._chunks(target, operation, parameters, more, cancels=True)) as chunks:
            async for chunk in chunks:
                if chunk.result is not None:
                    return chunk.result
        raise AssertionError("a stream of chunks ends with a result or raises")

    def stream(
        self, target: str, operation: str | None = None, parameters: Mapping[str, Any] | None = None, **more: Any
    ) -> AsyncGenerator[Chunk]:
        """Run a task and yield its chunks; the last has the result. Closing the stream does not stop the task."""
        return self._chunks(target, operation, parameters, more, cancels=False)

    async def get(self, task_id: str) -> DelegateResult:
        """The state of a task."""
        return await self._service.look(task_id)

    async def cancel(self, task_id: str, reason: str = "") -> DelegateResult:
        """Stop a task and everything below it; its state then."""
        return await self._service.cancel(task_id, reason)

    async def _chunks(
        self, target: str, operation: str | None, parameters: Mapping[str, Any] | None, more: Mapping[str, Any], *, cancels: bool
    ) -> AsyncGenerator[Chunk]:
        from remit.server.grpc.task_client import RemoteTask

        message = _message(target, operation, parameters or {}, more)
        timeout = message.config.timeout_ns / 1e9 or MAX_WAIT_SECONDS
        following = RemoteTask(
            service=self._service,
            request=message,
            until=time.monotonic() + timeout + self._grace_seconds,
            reach_seconds=self._connect_seconds,
            is_streamed=self._streaming,
            poll_seconds=self._poll_seconds,
        )
        started_at = time.time()
        try:
            async with contextlib.aclosing(following.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        except asyncio.CancelledError:
            if cancels:
                await self._cancel_remote(following)
            raise
        except (Misused, Refused):
            raise
        except RemitError as error:
            yield final_chunk(_result_of(error, f"{target}.{operation}" if operation else target, started_at, following.task_id))

    async def _cancel_remote(self, following: "RemoteTask") -> None:
        cancelling = asyncio.ensure_future(following.give_back("its caller was cancelled"))
        self._cancelling.add(cancelling)
        cancelling.add_done_callback(self._cancelling.discard)
        cancelling.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((cancelling,), timeout=CANCEL_SECONDS)


def _result_of(error: RemitError, agent: str, started_at: float, task_id: str | None) -> DelegateResult:
    from remit.server.grpc.task_client import NoAnswer

    result = result_of_error(error, agent, started_at, time.time(), task_id)
    if isinstance(error, NoAnswer) and task_id is not None and result.error is not None:
        return replace(result, task_state=TaskState.TIMEOUT, error=replace(result.error, code="TASK_TIMEOUT"))
    return result


def _message(target: str, operation: str | None, parameters: Mapping[str, Any], more: Mapping[str, Any]) -> "pb.ExecuteTaskRequest":
    """The request as sent. Raises `DelegateError` for values that cannot be sent; the server checks the rest."""
    from remit.agents.proto.v1 import tasks_pb2 as pb
    from remit.agents.proto.values import nanoseconds, struct_of

    given = {"session" if name == "session_id" else name: value for name, value in more.items() if value is not None}
    named = dict(parameters) if isinstance(parameters, Mapping) else parameters
    asked = validated(TaskRequest, {"target": target, "operation": operation or None, "parameters": named, **given})
    return pb.ExecuteTaskRequest(
        agent_id=asked.target or "",
        session_id=asked.session or "",
        type=asked.operation or "",
        priority=Priority[asked.priority.upper()] if asked.priority else 0,  # type: ignore[arg-type]  # an enum of protobuf
        config=pb.TaskConfig(
            parameters=struct_of(asked.parameters),
            timeout_ns=nanoseconds((asked.timeout or 0) / 1000),
            # Use a generated key if none is given: a request whose answer was lost is sent again and must not run twice.
            key=asked.key or f"client-{uuid.uuid4().hex}",
            resume=asked.resume or "",
            idle_ns=nanoseconds((asked.idle or 0) / 1000),
            accept=asked.accept or (),
            budget=None if asked.budget is None else struct_of(asked.budget.model_dump(exclude_none=True)),
        ),
    )
