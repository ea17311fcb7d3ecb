"""A registered agent as the engine runs it, and the messages of its stream. The work itself is in `pool`, the connection in `registry`.

Messages for work that the agent does not have are ignored.
"""

import asyncio
import contextlib
import contextvars
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from remit.core.agents import AgentSpec
from remit.core.errors import Failed, InvalidReturn, Misused, RemitError, Unavailable
from remit.core.parameters import WrongParameters
from remit.core.spelling import own_spelling
from remit.core.tracing import traceparent_of
from remit.engine.context_backend import EngineDesk
from remit.engine.running import Running
from remit.flow.artifacts import FILE_CLOCK_LAG_SECONDS
from remit.flow.context import Context
from remit.flow.output_schema import schema_faults
from remit.flow.plain import clean
from remit.flow.receive import read_answer
from remit.proto.times import nanoseconds
from remit.proto.v1 import tasks_pb2 as pb
from remit.proto.values import json_of, struct_of
from remit.serve.grpc.pool import Instance, Pool, Work
from remit.system.threads import off_loop

MOST_NAMED = 1000
MOST_TOKENS = 10**12
_WORDS = 2000
_OURS = frozenset({".remit", ".git"})
_UNAVAILABLE = "AGENT_UNAVAILABLE"


def heard(pool: Pool, instance: Instance, message: pb.AgentMessage) -> None:
    """Never raises: whatever is wrong with it is its sender's loss."""
    kind = message.WhichOneof("message")
    if kind is None or kind == "hello":
        return
    said = getattr(message, kind)
    work = instance.works.get(said.work_id)
    if kind in ("done", "failed"):
        outcome = _failure(said) if kind == "failed" else _result(said, work.ctx) if work is not None else None
        pool.settle(instance, said.work_id, outcome)
        return
    if work is None:
        return
    try:
        _told(work.ctx, kind, said)
    except RemitError as error:  # its delegation has ended, or what it declares is none
        _complain(work.ctx, error)


def _told(ctx: Any, kind: str, said: Any) -> None:
    match kind:
        case "progress":
            fraction = said.fraction if said.HasField("fraction") and math.isfinite(said.fraction) else None
            ctx.progress(said.message, fraction)
        case "output":
            ctx.emit(json_of(said.chunk))
        case "artifact":
            if (fault := _not_its_own(ctx, said.path)) is not None:
                raise Misused(fault)
            ctx.artifact(said.path, said.type or "data", said.summary)
        case "spent":  # what was drawn is never given back
            cost = said.cost if math.isfinite(said.cost) else 0.0
            ctx.spend(tokens=min(MOST_TOKENS, max(0, said.tokens)), cost=max(0.0, cost))


def _not_its_own(ctx: Any, path: str) -> str | None:
    """Whoever sees a return may read its artifacts. So an agent that was only let in to serve cannot name any file of the project: what was
    there before its work, or is remit's or git's own, is none that it made."""
    try:
        place, root = Path(ctx.root, path).resolve(), Path(ctx.root).resolve()
        top = place.relative_to(root).parts[:1]  # outside of it there is none that it could have made
        if top and top[0].casefold() in _OURS and not place.is_relative_to(ctx.scratch.resolve()):
            return f"{path!r:.200} is not its to hand in."
        written_at = place.stat().st_mtime
    except (OSError, ValueError, RuntimeError):
        return None  # whether there is one is judged with its return
    if written_at < ctx._desk.running.started_wall - FILE_CLOCK_LAG_SECONDS:
        return f"{path!r:.200} was there before its work began."
    return None


def _complain(ctx: Any, error: RemitError) -> None:
    try:
        ctx.progress(f"What it said was not taken: {error.message}")
    except RemitError:
        return


def _result(said: pb.WorkDone, ctx: Any) -> Any:
    """The value; of what is meant as a return, the return, or the fault that it is none."""
    value = json_of(said.result) if said.HasField("result") else None
    received = read_answer(value)
    named = received.candidate.get("artifacts") if received.candidate is not None else None
    for one in named[:MOST_NAMED] if isinstance(named, list) else ():  # also where it only looks like a return: it may be taken for one
        path = one.get("path") if isinstance(one, dict) else one
        if isinstance(path, str) and (fault := _not_its_own(ctx, path)) is not None:
            return InvalidReturn([f"artifacts: {fault}"])
    if isinstance(named, list) and len(named) > MOST_NAMED:
        return InvalidReturn([f"artifacts: more than {MOST_NAMED}"])
    if not said.is_return:
        return value
    if received.candidate is None:
        return InvalidReturn(received.faults)
    return {"status": None, "summary": "", **received.candidate}  # judged as a return, whatever is missing in it


def _failure(said: pb.WorkFailed) -> Any:
    message = clean(said.message)[:_WORDS] or "It failed, and did not say why."
    code = clean(said.code)[:100]
    if code == _UNAVAILABLE:
        return Unavailable(message)
    if said.recoverable:
        return Failed(message, code=code or None)
    error = {"type": "execution", "message": message, "code": code or "UNKNOWN_ERROR", "recoverable": False, "recommendation": ""}
    return {"status": "failed", "summary": message[:400], "artifacts": [], "errors": [error]}


ADDRESSED: contextvars.ContextVar[str | None] = contextvars.ContextVar("remit_addressed_agent", default=None)
"""The one instance that what is begun now is meant for (`ExecuteTaskRequest.agent_id`)."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list, tuple), "object": (Mapping,),
    "null": (type(None),),
}  # fmt: skip
_remote_agent_WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "array": "a list",
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
            faults.append((name, f" must be {_remote_agent_WORDS[kind]}, not {str(value)[:60]!r}"))
    return faults


def _is_a(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])
