"""An agent elsewhere that is asked over gRPC: made of a definition of kind `grpc` by `agents.executors`.

Its parameters pass through; what it takes is told by the other side when that is reached. Deadline and record are ours, whatever
the other side does; depth, path, trace and what is left of the time travel along. A connection that breaks is taken up again by the task's
id; when a delegation is stopped here, its task there is cancelled. Loads nothing until it is first needed.
"""

import asyncio
import contextlib
import importlib
import time
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.definition import Definition
from remit.core.agents import AgentSpec
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.parameters import own_spelling
from remit.runtime.context import Context
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.grpc.task_service import TaskService
    from remit.agents.proto.v1 import tasks_pb2 as pb


CLOSE_SECONDS = 3.0
"""For cancellations that are on their way when the project is closed."""
LEAVE_SECONDS = 0.15
"""So long whoever is stopped waits for its cancellation to be sent."""
KNOWN_SECONDS = 60.0
"""So long what the other side said of the agent is believed."""
LEARN_SECONDS = 2.0
"""So long whoever is asked may take to say what it takes; then it is asked without knowing that."""
MOST_COUNTED = 1000


class GrpcAgent:
    __slots__ = ("_asked_at", "_info", "_leaving", "_root", "_runs", "_service", "definition", "spec")

    def __init__(self, definition: Definition, root: Path) -> None:
        self.spec: AgentSpec = definition.spec
        self.definition = definition
        self._root = root
        self._service: TaskService | None = None
        self._info: pb.AgentInfo | None = None
        self._asked_at = float("-inf")
        self._leaving: set[asyncio.Task[Any]] = set()
        self._runs: OrderedDict[str, int] = OrderedDict()
        """How often it was asked in each delegation: a retry is another task there, a run after a crash of ours the same."""

    @property
    def remote(self) -> str:
        """Its name over there."""
        return self.definition.remote or self.spec.name

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        schema = self.spec.parameters_schema
        given = own_spelling(parameters, schema.get("properties", ()), self.spec.name)
        if missing := [name for name in schema.get("required", ()) if name not in given]:
            advice = f"{self.spec.name} takes {', '.join(schema.get('properties', ()))}."
            raise Misused(f"Parameters of {self.spec.name}: {', '.join(missing)}: required.", code="INVALID_PARAMETERS", advice=advice)
        return given

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> Any:
        service = await self._opened()
        from remit.agents.grpc.delegation import GrpcDelegation

        run = self._run_of(ctx)
        delegation = GrpcDelegation(self, service, ctx, arguments, key=f"remit-{ctx.session_id}-{run}")
        try:
            with contextlib.suppress(RemitError, TimeoutError):  # whether it can be reached is seen when it is asked
                async with asyncio.timeout(min(LEARN_SECONDS, 0.1 * ctx.remaining)):
                    await self.learn(service)
            return await delegation.done()
        except Refused as error:
            raise Unavailable(f"{self.spec.name}: {error.message}", advice=error.advice) from None
        except (asyncio.CancelledError, RemitError) as error:
            if delegation.is_left and not isinstance(error, Misused):
                await self._leave(delegation.left())
            raise

    async def learn(self, service: "TaskService") -> "pb.AgentInfo | None":
        """What the other side says of it: its parameters and its longest time. Raises what that costs."""
        now = time.monotonic()
        if now - self._asked_at < KNOWN_SECONDS:
            return self._info
        agents = await service.agents()
        self._info = next((one for one in agents if one.name == self.remote), None)
        self._asked_at = now
        if self._info is not None:
            self._take(self._info)
        return self._info

    def _take(self, info: "pb.AgentInfo") -> None:
        from remit.agents.proto.values import dict_of

        declared = self.definition.spec
        schema = dict_of(info.parameters_schema)
        is_said = bool(declared.parameters_schema.get("properties")) or schema.get("type") != "object"
        known = replace(
            declared,
            description=declared.description or info.description[:1000],
            parameters_schema=declared.parameters_schema if is_said else schema,
        )
        if known != self.spec:
            self.spec = known

    @property
    def longest_seconds(self) -> float | None:
        """The longest that may be asked for over there; None: not known."""
        return self._info.max_timeout_ns / 1e9 if self._info is not None and self._info.max_timeout_ns > 0 else None

    async def greet(self) -> None:
        """Learn what it takes, where it can be reached; nobody waits for it."""
        with contextlib.suppress(RemitError):
            await self.learn(await self._opened())

    async def close(self) -> None:
        if self._leaving:
            await asyncio.wait(set(self._leaving), timeout=CLOSE_SECONDS)
        if self._service is not None:
            await self._service.close()

    async def _opened(self) -> "TaskService":
        if self._service is None:
            try:
                await off_loop(importlib.import_module, "remit.agents.grpc.task_service")
            except ModuleNotFoundError as error:
                raise Unavailable(
                    f"{self.spec.name} is asked over gRPC, and {error.name} is not installed.",
                    code="TOOL_UNAVAILABLE",
                    advice='pip install "remit[grpc]"',
                ) from None
        from remit.agents.grpc.task_service import ServiceAddress, TaskService, token_from

        said, variable = self.definition, self.definition.token_variable
        token = token_from(variable)
        if variable is not None and token() is None:
            raise Unavailable(
                f"{self.spec.name} needs a token, and the variable {variable} is not set.",
                code="TOOL_UNAVAILABLE",
                advice=f"export {variable}=…, with a token that `remit token new` made over there.",
            )
        if self._service is None:
            ca_file = None if said.ca_file is None else self._root / said.ca_file
            self._service = TaskService(ServiceAddress(address=said.address, token=token, ca_file=ca_file))
        return self._service

    def _run_of(self, ctx: Context) -> int:
        run = self._runs[ctx.session_id] = self._runs.pop(ctx.session_id, -1) + 1
        while len(self._runs) > MOST_COUNTED:
            self._runs.popitem(last=False)
        return run

    async def _leave(self, cancelling: Coroutine[Any, Any, Any]) -> None:
        """Sent off, and waited for no longer than a stopped agent may take."""
        task = asyncio.create_task(cancelling)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((task,), timeout=LEAVE_SECONDS)
