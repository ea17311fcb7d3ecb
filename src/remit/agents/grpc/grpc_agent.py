"""The executor of agents reached over gRPC (kind `grpc`). Imports the gRPC library when an agent is first called.

Parameters pass through; the remote checks them. Depth, path, trace and the remaining time are sent along. A broken connection is
resumed by the task's id."""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from remit.agents.definition import Definition
from remit.agents.remote import RemoteExecutor
from remit.core.context import Context
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.system.packages import need
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.executors import ExecutorDeps
    from remit.agents.grpc.task_service import TaskService

KNOWN_SECONDS = 60.0
"""How long the remote's description of the agent is cached."""
LEARN_SECONDS = 2.0
"""Time limit for the remote's description; then it is called without it."""
MOST_COUNTED = 1000


class GrpcAgent(RemoteExecutor):
    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        super().__init__(definition, deps)
        self._service: TaskService | None = None
        self.longest_seconds: float | None = None
        """The longest timeout the remote accepts; None: unknown."""
        self._learned_at = float("-inf")
        self._runs: OrderedDict[str, int] = OrderedDict()
        """Runs of each delegation: a retry is another task there, a run after a crash the same."""

    @property
    def remote(self) -> str:
        """Its name on the other side."""
        return self.definition.remote or self.spec.name

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> Any:
        await off_loop(need, "remit.agents.grpc.delegation", "grpc")
        from remit.agents.grpc.delegation import begin, follow

        service = self._opened()
        with contextlib.suppress(RemitError, TimeoutError):  # the call itself shows whether it can be reached
            async with asyncio.timeout(min(LEARN_SECONDS, 0.1 * ctx.remaining)):
                await self._learn(service)
        task = begin(self, service, ctx, arguments, key=f"remit-{ctx.session_id}-{self._run_of(ctx)}")
        try:
            return await follow(task, self, ctx)
        except Refused as error:
            raise Unavailable(f"{self.spec.name}: {error.message}", advice=error.advice) from None
        except (asyncio.CancelledError, RemitError) as error:
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
            info = next((one for one in await service.agents() if one.name == self.remote), None)
            self.longest_seconds = info.max_timeout_ns / 1e9 if info is not None and info.max_timeout_ns > 0 else None
            self._learned_at = time.monotonic()

    def _opened(self) -> "TaskService":
        from remit.agents.grpc.task_service import ServiceAddress, TaskService

        self.token()
        if self._service is None:
            self._service = TaskService(ServiceAddress(address=self.definition.address, token=self.token, ca_file=self.ca_file))
        return self._service

    def _run_of(self, ctx: Context) -> int:
        run = self._runs[ctx.session_id] = self._runs.pop(ctx.session_id, -1) + 1
        while len(self._runs) > MOST_COUNTED:
            self._runs.popitem(last=False)
        return run
