"""Agents that registered: their streams, their work, and what they say about it. `registry` has connections and declarations.

The engine runs a `RemoteAgent`, which sends a work order over the stream of its `Instance` and waits for `Work.done`."""

import asyncio
import contextlib
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.remote import check_by_schema
from remit.agents.remote_context import ContextService
from remit.core.agents import AgentSpec
from remit.core.context import Context
from remit.core.errors import Failed, InvalidReturn, Misused, RemitError, Unavailable
from remit.core.ids import traceparent_of
from remit.core.jsonable import clean_text
from remit.runtime.deps import CURRENT
from remit.runtime.receive import read_answer
from remit.system.artifact_files import FILE_CLOCK_LAG_SECONDS
from remit.system.protobuf_values import json_of, nanoseconds, struct_of

if TYPE_CHECKING:
    from remit.runtime.local_context import LocalRun

MOST_ARTIFACTS = 1000
MOST_TOKENS = 10**12
_SPARE_MESSAGES = 64
_RESERVED_FOLDERS = frozenset({".remit", ".git"})


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    ctx: Context
    started_wall: float
    done: "asyncio.Future[Any]"


@dataclass(slots=True, kw_only=True, eq=False)
class Instance:
    """One registered agent."""

    agent_id: str
    name: str
    principal: str
    secret_digest: bytes
    slots: int
    operations: Mapping[str, AgentSpec]
    """As it declared them, by operation; empty: the agent itself."""
    heard_at: float
    free: asyncio.Semaphore
    outbox: "asyncio.Queue[pb.WorkMessage | None] | None" = None
    """Of its stream; None: it has none."""
    works: dict[str, Work] = field(default_factory=dict)
    is_leaving: bool = False

    def send(self, **message: Any) -> None:
        """Raises `Unavailable` for an agent that is gone, or does not read its stream."""
        if self.outbox is None or self.outbox.qsize() > 4 * self.slots + _SPARE_MESSAGES:
            raise _lost(f"The agent {self.name} was lost.")
        self.outbox.put_nowait(pb.WorkMessage(**message))

    def settle(self, work_id: str, outcome: Any) -> None:
        """`outcome`: a value or an error. Ignored for work that the agent does not have."""
        work = self.works.pop(work_id, None)
        if work is not None and not work.done.done():
            work.done.set_exception(outcome) if isinstance(outcome, RemitError) else work.done.set_result(outcome)

    def end(self, why: str) -> None:
        """It left, its stream is broken, or it does not read: its work fails."""
        outbox, self.outbox = self.outbox, None
        if outbox is not None:
            outbox.put_nowait(None)
        for work_id in list(self.works):
            self.settle(work_id, _lost(f"{self.agent_id}, which performed {self.name}, was lost: {why}."))


def _lost(why: str) -> Unavailable:
    return Unavailable(why, advice="Start the agent again, then delegate again; how far the work got is not known.")


# ---- the agent that the engine runs


class RemoteAgent:
    __slots__ = ("_instance", "_operation", "_token_for", "spec")

    def __init__(self, spec: AgentSpec, instance: Instance, operation: str, token_for: "Callable[[LocalRun], str]") -> None:
        self.spec = spec
        self._instance = instance
        self._operation = operation
        self._token_for = token_for

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return check_by_schema(self.spec, parameters)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        running = CURRENT.get()
        assert running is not None
        instance, work_id = self._instance, f"work_{secrets.token_hex(8)}"
        async with instance.free:
            order = pb.WorkOrder(
                work_id=work_id,
                operation=self._operation,
                parameters=struct_of(arguments),
                deadline_ns=nanoseconds(ctx.deadline),
                context=struct_of(ctx.as_dict()),
                delegation_token=self._token_for(running),
                traceparent=traceparent_of(running.delegation),
            )
            instance.send(order=order)
            work = Work(ctx=ctx, started_wall=running.started_wall, done=asyncio.get_running_loop().create_future())
            instance.works[work_id] = work
            handing_in = running.engine.spawn(self._hand_in(ctx, work_id))
            try:
                return await work.done
            finally:
                handing_in.cancel()
                if instance.works.pop(work_id, None) is not None:
                    reason = "Its deadline has passed." if ctx.remaining <= 0 else "It was stopped."
                    with contextlib.suppress(Unavailable):
                        instance.send(stop=pb.WorkStop(work_id=work_id, reason=reason))

    async def _hand_in(self, ctx: Context, work_id: str) -> None:
        with contextlib.suppress(RemitError):
            await ctx.wait_hand_in()
            if ctx.hand_in:  # a stop ends the wait too
                self._instance.send(hand_in=pb.WorkHandIn(work_id=work_id))


# ---- messages of its stream


def handle_message(instance: Instance, message: pb.AgentMessage) -> None:
    """Never raises. Messages about work that the agent does not have are ignored."""
    kind = message.WhichOneof("message")
    if kind is None or kind == "hello":
        return
    said = getattr(message, kind)
    work = instance.works.get(said.work_id)
    if work is None:
        return
    if kind in ("done", "failed"):
        instance.settle(said.work_id, _failure(said) if kind == "failed" else _result(said, work))
        return
    with contextlib.suppress(RemitError):  # the delegation has ended
        try:
            _apply(work, kind, said)
        except RemitError as error:
            work.ctx.progress(f"A message of the agent was refused: {error.message}")


def _progress(said: pb.WorkProgress) -> dict[str, Any]:
    is_known = said.HasField("fraction") and math.isfinite(said.fraction)
    return {"message": said.message, "fraction": said.fraction if is_known else None}


def _spent(said: pb.WorkSpent) -> dict[str, Any]:
    """Negative amounts give nothing back."""
    cost = said.cost if math.isfinite(said.cost) else 0.0
    return {"tokens": min(MOST_TOKENS, max(0, said.tokens)), "cost": max(0.0, cost)}


_OPERATIONS: Mapping[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "progress": ("progress", _progress),
    "output": ("emit", lambda said: {"chunk": json_of(said.chunk)}),
    "artifact": ("artifact", lambda said: {"path": said.path, "type": said.type or "data", "summary": said.summary}),
    "spent": ("spend", _spent),
}
"""The operation of a context that a message of an agent is, and its arguments."""


def _apply(work: Work, kind: str, said: Any) -> None:
    if kind == "artifact" and (fault := _foreign_file(work, said.path)) is not None:
        raise Misused(fault)
    if kind in _OPERATIONS:
        name, arguments = _OPERATIONS[kind]
        ContextService(work.ctx.backend).take(name, arguments(said))


def _foreign_file(work: Work, path: str) -> str | None:
    """An agent may not return files of remit or git, or files that existed before its work: readers of a return may read them."""
    try:
        root = Path(work.ctx.root).resolve()
        place = Path(root, path).resolve()
        top = place.relative_to(root).parts[:1]
        if top and top[0].casefold() in _RESERVED_FOLDERS and not place.is_relative_to(work.ctx.scratch.resolve()):
            return f"{path!r:.200} must not be returned as an artifact."
        if place.stat().st_mtime < work.started_wall - FILE_CLOCK_LAG_SECONDS:
            return f"{path!r:.200} existed before its work began."
    except (OSError, ValueError, RuntimeError):
        pass  # whether it exists is checked with the return
    return None


def _result(said: pb.WorkDone, work: Work) -> Any:
    """The value; for `is_return` the return, or the error that it is invalid."""
    value = json_of(said.result) if said.HasField("result") else None
    received = read_answer(value)
    named = received.candidate.get("artifacts") if received.candidate is not None else None
    if isinstance(named, list):  # also without `is_return`: the value may look like a return
        if len(named) > MOST_ARTIFACTS:
            return InvalidReturn([f"artifacts: more than {MOST_ARTIFACTS}"])
        for one in named:
            path = one.get("path") if isinstance(one, dict) else one
            if isinstance(path, str) and (fault := _foreign_file(work, path)) is not None:
                return InvalidReturn([f"artifacts: {fault}"])
    if not said.is_return:
        return value
    return InvalidReturn(received.faults) if received.candidate is None else {"status": None, "summary": "", **received.candidate}


def _failure(said: pb.WorkFailed) -> Any:
    message = clean_text(said.message)[:2000] or "It failed without a message."
    code = clean_text(said.code)[:100]
    if code == "AGENT_UNAVAILABLE":
        return Unavailable(message)
    if said.recoverable:
        return Failed(message, code=code or None)
    error = {"type": "execution", "message": message, "code": code or "UNKNOWN_ERROR", "recoverable": False, "recommendation": ""}
    return {"status": "failed", "summary": message[:400], "artifacts": [], "errors": [error]}
