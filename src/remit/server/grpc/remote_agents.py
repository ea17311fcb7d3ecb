"""A pool of registered agents of one name: instances, their work, and work that waits for a free instance.

The engine runs a `RemoteAgent`: it submits a `Work` to its pool and waits for `Work.done`. Work goes to the least loaded instance, or waits
for one. `registry` has connections and declarations."""

import asyncio
import contextlib
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.values import json_of, nanoseconds, struct_of
from remit.agents.remote import check_by_schema
from remit.agents.remote_context import ContextService
from remit.core.agents import AgentSpec
from remit.core.context import Context
from remit.core.errors import Failed, InvalidReturn, Misused, Refused, RemitError, Unavailable
from remit.core.ids import traceparent_of
from remit.core.jsonable import clean_text
from remit.runtime.deps import CURRENT
from remit.runtime.receive import read_answer
from remit.system.artifact_files import FILE_CLOCK_LAG_SECONDS

if TYPE_CHECKING:
    from remit.runtime.local_context import LocalRun

MOST_RUNS = 5
"""Maximum runs of one work item: work that kills its agents must not circulate for ever."""
MOST_ARTIFACTS = 1000
MOST_TOKENS = 10**12
_SPARE_MESSAGES = 64
_RESERVED_FOLDERS = frozenset({".remit", ".git"})


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    order: pb.WorkOrder
    """Without its id: each run has its own."""
    operation: str
    is_safe: bool
    ctx: Context
    started_wall: float
    done: "asyncio.Future[Any]"
    work_id: str = ""
    instance: "Instance | None" = None
    runs: int = 0
    is_handing_in: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Instance:
    agent_id: str
    name: str
    principal: str
    secret_digest: bytes
    slots: int
    operations: Mapping[str, AgentSpec]
    """As it declared them, by operation; empty: the agent itself."""
    heard_at: float
    outbox: "asyncio.Queue[pb.WorkMessage | None] | None" = None
    """Of its stream; None: it has none."""
    works: dict[str, Work] = field(default_factory=dict)
    is_leaving: bool = False

    @property
    def is_free(self) -> bool:
        return self.outbox is not None and not self.is_leaving and len(self.works) < self.slots

    def send(self, **message: Any) -> bool:
        """False: it does not read its stream."""
        if self.outbox is None or self.outbox.qsize() > 4 * self.slots + _SPARE_MESSAGES:
            return False
        self.outbox.put_nowait(pb.WorkMessage(**message))
        return True


class Pool:
    def __init__(self, name: str) -> None:
        self.name = name
        self.instances: dict[str, Instance] = {}
        self._principal: str | None = None
        self._waiting: list[Work] = []
        """In order; the engine orders by priority."""

    @property
    def is_idle(self) -> bool:
        return not self.instances and not self._waiting

    def claim(self, principal: str) -> None:
        """A name belongs to one principal while it has instances or work. Raises `Refused`."""
        if self._principal not in (None, principal) and not self.is_idle:
            advice = "Register under another name."
            raise Refused(f"The agent {self.name} is registered by another principal.", code="NAME_TAKEN", advice=advice)
        self._principal = principal

    # ---- work

    def submit(self, work: Work) -> None:
        self._waiting.append(work)
        self.fill()

    def withdraw(self, work: Work, reason: str) -> None:
        """No caller waits for it any more; ask its instance to stop."""
        instance, work.instance = work.instance, None
        if instance is None:
            self._waiting = [one for one in self._waiting if one is not work]
        elif instance.works.pop(work.work_id, None) is not None:
            instance.send(stop=pb.WorkStop(work_id=work.work_id, reason=reason))
            self.fill()

    def hand_in(self, work: Work) -> None:
        """Notify at the soft deadline."""
        work.is_handing_in = True
        if work.instance is not None:
            work.instance.send(hand_in=pb.WorkHandIn(work_id=work.work_id))
        elif work.runs:
            self._fail(work, f"The agent {self.name} was lost, and no other took over its work in time.")
            self.withdraw(work, "")

    def settle(self, instance: Instance, work_id: str, outcome: Any) -> None:
        """`outcome`: a value or an error. Ignored for work that the instance does not have."""
        work = instance.works.pop(work_id, None)
        if work is None:
            return
        work.instance = None
        if isinstance(outcome, Unavailable) and work.is_safe:
            self._retry(work, outcome.message)
        elif not work.done.done():
            work.done.set_exception(outcome) if isinstance(outcome, RemitError) else work.done.set_result(outcome)
        self.fill()

    def fill(self) -> None:
        """Give free slots to waiting work, in order; work that no instance can do fails."""
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            if work.done.done():
                continue
            able = [one for one in self.instances.values() if work.operation in one.operations and not one.is_leaving]
            free = [one for one in able if one.is_free]
            if free:  # the least loaded
                self._assign(work, min(free, key=lambda one: (len(one.works) / one.slots, one.heard_at)))
            elif able or work.runs:
                self._waiting.append(work)
            else:
                self._fail(work, f"No agent {self.name} is registered any more.")

    def _assign(self, work: Work, instance: Instance) -> None:
        work.runs += 1
        work.work_id = f"work_{secrets.token_hex(8)}"
        work.instance = instance
        instance.works[work.work_id] = work
        order = pb.WorkOrder()
        order.CopyFrom(work.order)
        order.work_id = work.work_id
        if not instance.send(order=order):
            self.remove(instance)
        elif work.is_handing_in:
            instance.send(hand_in=pb.WorkHandIn(work_id=work.work_id))

    # ---- instances

    def add(self, instance: Instance) -> None:
        self.instances[instance.agent_id] = instance
        self.fill()

    def remove(self, instance: Instance) -> None:
        """It left, its stream is broken, or it does not read: it loses its work."""
        self.instances.pop(instance.agent_id, None)
        if instance.outbox is not None:
            instance.outbox.put_nowait(None)
            instance.outbox = None
        lost, instance.works = instance.works, {}
        for work in lost.values():
            work.instance = None
            self._retry(work, f"{instance.agent_id}, which performed {self.name}, was lost.")
        self.fill()

    def _retry(self, work: Work, why: str) -> None:
        """Run with another instance if it is safe to repeat."""
        if work.done.done():
            return
        if not work.is_safe or work.runs >= MOST_RUNS or work.is_handing_in:
            self._fail(work, why)
            return
        with contextlib.suppress(RemitError):  # it has ended meanwhile
            work.ctx.progress(f"{why} Its work goes to another instance.")
            self._waiting.insert(0, work)

    def _fail(self, work: Work, why: str) -> None:
        if not work.done.done():
            advice = "Start the agent again, then delegate again; how far the work got is not known."
            work.done.set_exception(Unavailable(why, advice=advice))


# ---- the agent that the engine runs


class RemoteAgent:
    __slots__ = ("_operation", "_pool", "_token_for", "spec")

    def __init__(self, spec: AgentSpec, pool: Pool, operation: str, token_for: "Callable[[LocalRun], str]") -> None:
        """`spec.resumable`: its work may go to another instance."""
        self.spec = spec
        self._pool = pool
        self._operation = operation
        self._token_for = token_for

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return check_by_schema(self.spec, parameters)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        running = CURRENT.get()
        assert running is not None
        order = pb.WorkOrder(
            operation=self._operation,
            parameters=struct_of(arguments),
            deadline_ns=nanoseconds(ctx.deadline),
            context=struct_of(ctx.as_dict()),
            delegation_token=self._token_for(running),
            traceparent=traceparent_of(running.delegation),
        )
        work = Work(
            order=order,
            operation=self._operation,
            is_safe=self.spec.resumable,
            ctx=ctx,
            started_wall=running.started_wall,
            done=asyncio.get_running_loop().create_future(),
        )
        handing_in = running.engine.spawn(self._hand_in(ctx, work))
        self._pool.submit(work)
        try:
            return await work.done
        finally:
            handing_in.cancel()
            self._pool.withdraw(work, "Its deadline has passed." if ctx.remaining <= 0 else "It was stopped.")

    async def _hand_in(self, ctx: Context, work: Work) -> None:
        with contextlib.suppress(RemitError):
            await ctx.wait_hand_in()
            if ctx.hand_in:  # a stop ends the wait too
                self._pool.hand_in(work)


# ---- messages of its stream


def handle_message(pool: Pool, instance: Instance, message: pb.AgentMessage) -> None:
    """Never raises. Messages about work that the agent does not have are ignored."""
    kind = message.WhichOneof("message")
    if kind is None or kind == "hello":
        return
    said = getattr(message, kind)
    work = instance.works.get(said.work_id)
    if kind in ("done", "failed"):
        outcome = _failure(said) if kind == "failed" else _result(said, work) if work is not None else None
        pool.settle(instance, said.work_id, outcome)
    elif work is not None:
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
