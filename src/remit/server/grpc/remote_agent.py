"""A registered agent as the engine runs it, and the messages of its stream. The work itself is in `pool`, the connection in `registry`."""

import asyncio
import contextlib
import contextvars
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from remit.agents.proto.times import nanoseconds
from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.values import json_of, struct_of
from remit.core.agents import AgentSpec
from remit.core.errors import Failed, InvalidReturn, Misused, RemitError, Unavailable
from remit.core.jsonable import clean
from remit.core.parameters import WrongParameters, own_spelling
from remit.core.tracing import traceparent_of
from remit.engines.embedded.context_backend import EngineBackend
from remit.engines.embedded.running import Running
from remit.runtime.artifacts import FILE_CLOCK_LAG_SECONDS
from remit.runtime.context import Context
from remit.runtime.output_schema import schema_faults
from remit.runtime.receive import read_answer
from remit.server.grpc.pool import Instance, Pool, Work
from remit.system.threads import off_loop

ADDRESSED: contextvars.ContextVar[str | None] = contextvars.ContextVar("remit_addressed_agent", default=None)
"""The instance that the current request is meant for (`ExecuteTaskRequest.agent_id`)."""
MOST_NAMED = 1000
MOST_TOKENS = 10**12
_RESERVED_FOLDERS = frozenset({".remit", ".git"})
_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "string": ("text", (str,)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
    "array": ("a list", (list, tuple)),
    "object": ("a mapping", (Mapping,)),
    "null": ("null", (type(None),)),
}


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
        """Names and types. The whole schema is checked off the event loop, before the work is handed out."""
        properties = self.spec.parameters_schema.get("properties", {})
        given = own_spelling(parameters, properties, self.spec.name)
        if faults := _faults(given, self.spec.parameters_schema):
            raise WrongParameters(self.spec.name, faults, tuple(properties))
        return Arguments(given, ADDRESSED.get())

    async def perform(self, ctx: Context, arguments: Arguments) -> Any:
        await self._check_schema(arguments.parameters)
        backend = ctx.backend
        assert isinstance(backend, EngineBackend)
        running = backend.running
        order = pb.WorkOrder(
            operation=self._operation,
            parameters=struct_of(arguments.parameters),
            deadline_ns=nanoseconds(ctx.deadline),
            context=struct_of(ctx.as_dict()),
            delegation_token=self._token_for(running),
            traceparent=traceparent_of(running.delegation),
        )
        work = Work(
            order=order,
            operation=self._operation,
            is_safe=self._is_safe,
            ctx=ctx,
            done=asyncio.get_running_loop().create_future(),
            pinned=arguments.pinned,
            runs=running.attempt - 1 if self._is_safe else 0,  # resumed work waits for its agent to come back
        )
        telling = running.engine.spawn(self._tell_hand_in(ctx, work))
        self._pool.submit(work)
        try:
            return await work.done
        finally:
            telling.cancel()
            self._pool.withdraw(work, "Its deadline has passed." if ctx.remaining <= 0 else "It was stopped.")

    async def _check_schema(self, parameters: dict[str, Any]) -> None:
        schema = self.spec.parameters_schema
        if schema.keys() <= {"type", "properties"} and not schema.get("properties"):
            return
        faults = [fault for fault in await off_loop(schema_faults, parameters, schema) if "could not be judged" not in fault]
        if faults:
            words = "; ".join(fault.removeprefix("data.").removeprefix("data: ") for fault in faults)
            raise Misused(f"Parameters of {self.spec.name}: {words}.", code="INVALID_PARAMETERS")

    async def _tell_hand_in(self, ctx: Context, work: Work) -> None:
        with contextlib.suppress(RemitError):
            await ctx.wait_hand_in()
            if ctx.hand_in:  # a stop ends the wait too
                self._pool.hand_in(work)


def _faults(given: Mapping[str, Any], schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    faults = [(name, ": it is required") for name in schema.get("required", ()) if name not in given]
    if schema.get("additionalProperties") is False:
        faults += [(name, ": there is no such parameter") for name in given if name not in properties]
    for name, value in given.items():
        kind = properties[name].get("type") if isinstance(properties.get(name), Mapping) else None
        if isinstance(kind, str) and kind in _TYPES and not _is_a(value, kind):
            faults.append((name, f" must be {_TYPES[kind][0]}, not {str(value)[:60]!r}"))
    return faults


def _is_a(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind][1]) or (kind == "integer" and isinstance(value, float) and value.is_integer())


# ---- messages of its stream


def handle_message(pool: Pool, instance: Instance, message: pb.AgentMessage) -> None:
    """Never raises. Messages about work that the agent does not have are ignored."""
    kind = message.WhichOneof("message")
    if kind is None or kind == "hello":
        return
    said = getattr(message, kind)
    work = instance.works.get(said.work_id)
    if kind in ("done", "failed"):
        outcome = _failure(said) if kind == "failed" else _result(said, work.ctx) if work is not None else None
        pool.settle(instance, said.work_id, outcome)
    elif work is not None:
        with contextlib.suppress(RemitError):  # the delegation has ended
            try:
                _apply(work.ctx, kind, said)
            except RemitError as error:
                work.ctx.progress(f"A message of the agent was refused: {error.message}")


def _apply(ctx: Any, kind: str, said: Any) -> None:
    match kind:
        case "progress":
            ctx.progress(said.message, said.fraction if said.HasField("fraction") and math.isfinite(said.fraction) else None)
        case "output":
            ctx.emit(json_of(said.chunk))
        case "artifact":
            if (fault := _foreign_file(ctx, said.path)) is not None:
                raise Misused(fault)
            ctx.artifact(said.path, said.type or "data", said.summary)
        case "spent":  # negative amounts give nothing back
            cost = said.cost if math.isfinite(said.cost) else 0.0
            ctx.spend(tokens=min(MOST_TOKENS, max(0, said.tokens)), cost=max(0.0, cost))


def _foreign_file(ctx: Any, path: str) -> str | None:
    """Who sees a return may read its artifacts. So an agent may not hand in files of remit or git, or files that existed before its
    work."""
    try:
        place, root = Path(ctx.root, path).resolve(), Path(ctx.root).resolve()
        top = place.relative_to(root).parts[:1]
        if top and top[0].casefold() in _RESERVED_FOLDERS and not place.is_relative_to(ctx.scratch.resolve()):
            return f"{path!r:.200} is not its to hand in."
        if place.stat().st_mtime < ctx.backend.running.started_wall - FILE_CLOCK_LAG_SECONDS:
            return f"{path!r:.200} existed before its work began."
    except (OSError, ValueError, RuntimeError):
        return None  # whether it exists is checked with the return
    return None


def _result(said: pb.WorkDone, ctx: Any) -> Any:
    """The value; for `is_return` the return, or the error that it is invalid."""
    value = json_of(said.result) if said.HasField("result") else None
    received = read_answer(value)
    named = received.candidate.get("artifacts") if received.candidate is not None else None
    if isinstance(named, list):  # also without `is_return`: the value may be taken for a return
        if len(named) > MOST_NAMED:
            return InvalidReturn([f"artifacts: more than {MOST_NAMED}"])
        for one in named:
            path = one.get("path") if isinstance(one, dict) else one
            if isinstance(path, str) and (fault := _foreign_file(ctx, path)) is not None:
                return InvalidReturn([f"artifacts: {fault}"])
    if not said.is_return:
        return value
    return InvalidReturn(received.faults) if received.candidate is None else {"status": None, "summary": "", **received.candidate}


def _failure(said: pb.WorkFailed) -> Any:
    message = clean(said.message)[:2000] or "It failed without a message."
    code = clean(said.code)[:100]
    if code == "AGENT_UNAVAILABLE":
        return Unavailable(message)
    if said.recoverable:
        return Failed(message, code=code or None)
    error = {"type": "execution", "message": message, "code": code or "UNKNOWN_ERROR", "recoverable": False, "recommendation": ""}
    return {"status": "failed", "summary": message[:400], "artifacts": [], "errors": [error]}
