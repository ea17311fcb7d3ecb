"""A registered agent as the engine runs it: an agent like any other. The work itself is in `remote`, the connection in `registry`."""

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from remit.core.agents import AgentSpec
from remit.core.errors import Misused, RemitError
from remit.core.parameters import WrongParameters
from remit.core.spelling import own_spelling
from remit.core.tracing import traceparent_of
from remit.engine.desk import EngineDesk
from remit.engine.running import Running
from remit.flow.context import Context
from remit.flow.output_schema import schema_faults
from remit.proto.times import nanoseconds
from remit.proto.v1 import tasks_pb2 as pb
from remit.proto.values import struct_of
from remit.serve.grpc.remote import Pool, Work
from remit.system.threads import off_loop

ADDRESSED: contextvars.ContextVar[str | None] = contextvars.ContextVar("remit_addressed_agent", default=None)
"""The one instance that what is begun now is meant for (`ExecuteTaskRequest.agent_id`)."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list, tuple), "object": (Mapping,),
    "null": (type(None),),
}  # fmt: skip
_WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "array": "a list",
          "object": "a mapping", "null": "null"}  # fmt: skip


class Arguments(NamedTuple):
    parameters: dict[str, Any]
    pinned: str | None


class RemoteAgent:
    __slots__ = ("_is_safe", "_operation", "_pool", "_token_for", "spec")

    def __init__(self, spec: AgentSpec, pool: Pool, operation: str, is_safe: bool, token_for: Callable[[Running], str]) -> None:
        self.spec = spec
        self._pool = pool
        self._operation = operation
        self._is_safe = is_safe
        self._token_for = token_for

    def check(self, parameters: dict[str, Any]) -> Arguments:
        """What can be told without delay; the rest of its schema is judged before it is handed out."""
        properties = self.spec.parameters_schema.get("properties", {})
        given = own_spelling(parameters, properties, self.spec.name)
        if faults := list(_faults(given, self.spec.parameters_schema)):
            raise WrongParameters(self.spec.name, faults, tuple(properties))
        return Arguments(given, ADDRESSED.get())

    async def perform(self, ctx: Context, arguments: Arguments) -> Any:
        await self._must_fit(arguments.parameters)
        desk = ctx._desk
        assert isinstance(desk, EngineDesk)
        running = desk.running
        work = Work(
            order=self._order(ctx, running, arguments.parameters),
            operation=self._operation,
            is_safe=self._is_safe,
            ctx=ctx,
            done=asyncio.get_running_loop().create_future(),
            pinned=arguments.pinned,
            # Of a server before this one: one that it is done by was there, and is waited for.
            runs=running.attempt - 1 if self._is_safe else 0,
        )
        telling = running.engine.spawn(self._tell_hand_in(ctx, work))
        self._pool.submit(work)
        try:
            return await work.done
        finally:
            telling.cancel()
            self._pool.withdraw(work, "Its deadline has passed." if ctx.remaining <= 0 else "It was stopped.")

    async def _must_fit(self, parameters: dict[str, Any]) -> None:
        schema = self.spec.parameters_schema
        if schema.keys() <= {"type", "properties"} and not schema.get("properties"):
            return
        faults = [fault for fault in await off_loop(schema_faults, parameters, schema) if "could not be judged" not in fault]
        if faults:
            words = "; ".join(fault.removeprefix("data.").removeprefix("data: ") for fault in faults)
            raise Misused(f"Parameters of {self.spec.name}: {words}.", code="INVALID_PARAMETERS")

    def _order(self, ctx: Context, running: Running, parameters: dict[str, Any]) -> pb.WorkOrder:
        delegation = running.delegation
        return pb.WorkOrder(
            operation=self._operation,
            parameters=struct_of(parameters),
            deadline_ns=nanoseconds(ctx.deadline),
            context=struct_of(ctx.as_dict()),
            delegation_token=self._token_for(running),
            traceparent=traceparent_of(delegation),
        )

    async def _tell_hand_in(self, ctx: Context, work: Work) -> None:
        with contextlib.suppress(RemitError):
            await ctx.wait_hand_in()
            if ctx.hand_in:  # a stop, too, ends the wait
                self._pool.hand_in(work)


def _faults(given: Mapping[str, Any], schema: Mapping[str, Any]) -> "list[tuple[str, str]]":
    properties: Mapping[str, Any] = schema.get("properties", {})
    faults = [(name, ": it is required") for name in schema.get("required", ()) if name not in given]
    if schema.get("additionalProperties") is False:
        faults += [(name, ": there is no such parameter") for name in given if name not in properties]
    for name, value in given.items():
        kind = properties[name].get("type") if isinstance(properties.get(name), Mapping) else None
        if isinstance(kind, str) and kind in _TYPES and not _is_a(value, kind):
            faults.append((name, f" must be {_WORDS[kind]}, not {str(value)[:60]!r}"))
    return faults


def _is_a(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])
