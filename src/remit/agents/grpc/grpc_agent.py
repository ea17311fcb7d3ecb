"""The executor of agents reached over gRPC (kind `grpc`). Imports the gRPC library when an agent is first called.

Parameters pass through; the remote checks them. Depth, path, trace and the remaining time are sent along. A broken connection is resumed by
the task's id. Files stay on the remote: the return lists them under `remote`, not as artifacts."""

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from remit.agents.definition import Definition
from remit.agents.proto.metadata import DEADLINE, DEPTH, PATH, TRACEPARENT
from remit.agents.remote import RemoteExecutor, error_entry, errors_of, seconds_for_remote
from remit.core.context import Context
from remit.core.delegate_requests import parts_of
from remit.core.delegate_results import Chunk, ChunkType, DelegateResult, TaskState
from remit.core.errors import Misused, OutOfTime, Refused, RemitError, Unavailable
from remit.core.ids import traceparent_of
from remit.core.text import shorten_with_count
from remit.system.packages import need
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.executors import ExecutorDeps
    from remit.agents.grpc.task_service import Pairs, RemoteTask, TaskService

KNOWN_SECONDS = 60.0
"""How long the remote's maximum timeout is cached."""
LEARN_SECONDS = 2.0
"""Time limit for the remote's description; then it is called without it."""
REACH_SECONDS = 5.0
MOST_COUNTED = 1000
_MOST_ARTIFACTS = 200
_STATUSES = ("completed", "partial", "failed", "blocked")


class GrpcAgent(RemoteExecutor):
    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        super().__init__(definition, deps)
        self._service: TaskService | None = None
        self._longest_seconds: float | None = None
        """The longest timeout the remote accepts; None: unknown."""
        self._learned_at = float("-inf")
        self._runs: dict[str, int] = {}
        """Runs of recent delegations: a retry is another task there, a run after a crash the same."""

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> Any:
        await off_loop(need, "remit.agents.grpc.task_service", "grpc")
        from remit.agents.grpc.task_service import ServiceAddress, TaskService

        self.token()
        if self._service is None:
            self._service = TaskService(ServiceAddress(address=self.definition.address, token=self.token, ca_file=self.ca_file))
        with contextlib.suppress(RemitError, TimeoutError):  # the call itself shows whether it can be reached
            async with asyncio.timeout(min(LEARN_SECONDS, 0.1 * ctx.remaining)):
                await self._learn(self._service)
        task = self._task(self._service, ctx, arguments)
        try:
            async with contextlib.aclosing(task.chunks()) as chunks:
                async for chunk in chunks:
                    if chunk.result is not None:
                        return self._return_of(chunk.result)
                    _report(ctx, chunk)
            raise AssertionError("a stream of chunks ends with a result or raises")
        except (asyncio.CancelledError, RemitError) as error:
            if isinstance(error, Refused):
                raise Unavailable(f"{self.spec.name}: {error.message}", advice=error.advice) from None
            if not task.is_over and not isinstance(error, Misused):
                await self.cancel_remote(task.give_back(f"{ctx.session_id} was stopped"))
            raise

    async def close(self) -> None:
        await super().close()
        if self._service is not None:
            await self._service.close()

    async def _learn(self, service: "TaskService") -> None:
        """Read the maximum timeout from the remote."""
        if time.monotonic() - self._learned_at >= KNOWN_SECONDS:
            name = self.definition.remote or self.spec.name
            info = next((one for one in await service.agents() if one.name == name), None)
            self._longest_seconds = info.max_timeout_ns / 1e9 if info is not None and info.max_timeout_ns > 0 else None
            self._learned_at = time.monotonic()

    def _task(self, service: "TaskService", ctx: Context, arguments: Mapping[str, Any]) -> "RemoteTask":
        from remit.agents.grpc.task_service import RemoteTask, TaskOrder
        from remit.agents.proto.v1 import tasks_pb2 as pb
        from remit.agents.proto.values import nanoseconds, struct_of

        target, operation = parts_of(self.definition.remote or self.spec.name)
        left, longest = ctx.remaining, self._longest_seconds
        run = self._runs[ctx.session_id] = self._runs.pop(ctx.session_id, -1) + 1
        if len(self._runs) > MOST_COUNTED:
            del self._runs[next(iter(self._runs))]
        config = pb.TaskConfig(
            parameters=struct_of(arguments),
            # Above the remote's maximum it would be refused. If that is unknown, the deadline in the metadata limits it.
            timeout_ns=nanoseconds(min(seconds_for_remote(ctx), longest)) if longest is not None else 0,
            key=f"remit-{ctx.session_id}-{run}",
        )
        priority: Any = int(ctx.backend.delegation.priority)
        request = pb.ExecuteTaskRequest(agent_id=target, type=operation or "", session_id=ctx.root_id, priority=priority, config=config)

        def position() -> "Pairs":
            """The caller's position. Honoured for principals with `relay`."""
            pairs = [(DEPTH, str(ctx.depth)), (PATH, json.dumps(list(ctx.path))), (TRACEPARENT, traceparent_of(ctx.backend.delegation))]
            # Clocks of two machines differ; a number of seconds does not.
            return pairs if longest is not None else [*pairs, (DEADLINE, str(nanoseconds(ctx.deadline)))]

        order = TaskOrder(request=request, until=time.monotonic() + left, reach_seconds=min(REACH_SECONDS, left), more=position)
        return RemoteTask(service, order)

    def _return_of(self, result: DelegateResult) -> dict[str, Any]:
        """The return document. Raises `Unavailable`, `OutOfTime`."""
        error, meta = result.error, result.metadata
        if error is not None and error.code == "AGENT_UNAVAILABLE":
            raise Unavailable(f"{self.spec.name}: {error.message}", advice=error.recommendation)
        status = meta.status if meta.status in _STATUSES else None
        if result.success:
            status = "completed"
        elif status in (None, "completed"):
            status = "partial" if result.task_state is TaskState.TIMEOUT else "failed"
        answer: dict[str, Any] = {
            "status": status,
            "summary": shorten_with_count(result.output) or f"{self.spec.name} has ended.",
            "artifacts": [],
            "errors": [] if status == "completed" else _errors(result),
            "data": result.data,
            "remote": {
                "task_id": result.task_id,
                "state": str(result.task_state),
                "agent": meta.agent_id,
                "artifacts": [artifact.to_dict() for artifact in result.artifacts[:_MOST_ARTIFACTS]],
            },
        }
        if status == "partial" and meta.stop_reason == "deadline":
            raise OutOfTime(answer["summary"], answer=answer)  # its timeout was ours, slightly reduced
        return answer


def _report(ctx: Context, chunk: Chunk) -> None:
    if chunk.type is ChunkType.DATA:
        ctx.emit(chunk.data.get("chunk"))
    elif chunk.type is ChunkType.STATUS and chunk.data.get("state") != TaskState.PAUSED:
        return  # that it is queued and running there, as here
    elif chunk.number:
        fraction = chunk.data.get("fraction")
        ctx.progress(str(chunk.data.get("message", "")), fraction if isinstance(fraction, int | float) else None)


def _errors(result: DelegateResult) -> list[dict[str, Any]]:
    error = result.error
    if error is None:
        return [error_entry(result.output or "It failed without a reason.")]
    own = {name: value for name, value in error.details.items() if name not in ("message", "recommendation")}
    return errors_of(error.details.get("errors")) or [
        error_entry(error.message or "It failed.", **own, recommendation=error.recommendation)
    ]
