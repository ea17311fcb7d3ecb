"""Registered agents of one name as a pool: its instances, their work, and the work that waits for a free instance.

A `Work` is one run of a delegation. It goes to the least loaded instance, or waits in order of priority. Independent of the directory, the
protobuf services (`registry`) and the engine: whoever performs a delegation (`remote_agent`) waits for `Work.done`.
"""

import asyncio
import contextlib
import contextvars
import heapq
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.values import json_of, nanoseconds, struct_of
from remit.core.agents import AgentSpec
from remit.core.errors import Failed, InvalidReturn, Misused, Refused, RemitError, Unavailable
from remit.core.jsonable import clean_text
from remit.core.parameters import WrongParameters, own_spelling
from remit.core.tracing import traceparent_of
from remit.runtime.artifacts import FILE_CLOCK_LAG_SECONDS
from remit.runtime.context import Context
from remit.runtime.engine import CURRENT, LiveDelegation
from remit.runtime.output_schema import schema_faults
from remit.runtime.receive import read_answer
from remit.system.threads import off_loop

# ---- Registered agents of one name as a pool: its instances, their work, and the work that waits for a free instance.


MOST_RUNS = 5
"""So often one piece of work is handed out: what kills whoever has it must not be handed round for ever."""
STOPPING_SECONDS = 5.0
"""One that was told to stop keeps its slot until it says that it has, or for so long."""
AGEING_SECONDS = 30.0
"""Waiting that long raises priority by one, as in the engine's queue."""
_SPARE = 64
"""Messages beyond what its slots call for that may wait for an agent to read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """An operation, as one instance declared it."""

    spec: AgentSpec
    is_safe_to_repeat: bool


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    order: pb.WorkOrder
    """All of it but its id, which each run has one of its own of."""
    operation: str
    is_safe: bool
    ctx: Context
    done: "asyncio.Future[Any]"
    pinned: str | None = None
    """The one instance that it is meant for."""
    work_id: str = ""
    instance: "Instance | None" = None
    runs: int = 0
    started_wall: float = 0.0
    is_handing_in: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Instance:
    agent_id: str
    name: str
    principal: str
    secret_digest: bytes
    slots: int
    operations: Mapping[str, Offered]
    """By operation; empty: the agent itself."""
    heard_at: float
    outbox: "asyncio.Queue[pb.WorkMessage | None] | None" = None
    """Of its stream; None: it has none."""
    streamless_since: float | None = None
    """Monotonic; None: it has a stream."""
    works: dict[str, Work] = field(default_factory=dict)
    stopping: set[str] = field(default_factory=set)
    is_leaving: bool = False

    @property
    def free(self) -> int:
        return 0 if self.outbox is None or self.is_leaving else self.slots - len(self.works) - len(self.stopping)

    def send(self, **message: Any) -> bool:
        """False: it does not read what it is sent."""
        if self.outbox is None or self.outbox.qsize() > 4 * self.slots + _SPARE:
            return False
        self.outbox.put_nowait(pb.WorkMessage(**message))
        return True

    def hang_up(self) -> None:
        """The end of its stream, after what is on its way."""
        if self.outbox is not None:
            self.outbox.put_nowait(None)


class Pool:
    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self.name = name
        self._now = now
        self.instances: dict[str, Instance] = {}
        self._principal: str | None = None
        self.kept_until = 0.0
        """Until then it is kept for whoever had it before, though nobody is there: what they had waits for them."""
        self._waiting: list[tuple[float, int, Work]] = []
        self._count = 0

    @property
    def is_idle(self) -> bool:
        return not self.instances and not self._waiting

    def must_be_of(self, principal: str) -> None:
        """A name is one principal's while anybody or anything is there: its work is no other's to be given. Raises `Refused`."""
        if self._principal not in (None, principal) and (self._now() < self.kept_until or not self.is_idle):
            raise Refused(
                f"There is an agent {self.name} here already, of somebody else.", code="NAME_TAKEN", advice="Register under another name."
            )
        self._principal = principal

    def keep_for(self, principal: str, seconds: float) -> None:
        self._principal, self.kept_until = principal, self._now() + seconds

    # ---- work

    def submit(self, work: Work) -> None:
        self._count += 1
        priority = work.ctx.backend.delegation.priority
        heapq.heappush(self._waiting, (self._now() - priority * AGEING_SECONDS, self._count, work))
        self.fill()

    def withdraw(self, work: Work, reason: str) -> None:
        """Nobody waits for it any more; whoever has it is told to stop, and not listened to."""
        instance = work.instance
        if instance is None:
            self._waiting = [entry for entry in self._waiting if entry[2] is not work]
            heapq.heapify(self._waiting)
            return
        work.instance = None
        if instance.works.pop(work.work_id, None) is None:
            return
        if instance.send(stop=pb.WorkStop(work_id=work.work_id, reason=reason)):
            instance.stopping.add(work.work_id)
            asyncio.get_running_loop().call_later(STOPPING_SECONDS, self.stopped, instance, work.work_id)
        self.fill()

    def hand_in(self, work: Work) -> None:
        """The soft deadline."""
        work.is_handing_in = True
        if work.instance is not None:
            work.instance.send(hand_in=pb.WorkHandIn(work_id=work.work_id))
        elif work.runs:
            self._fail(work, f"{self.name} was lost, and nobody took its work up again in time.")
            self.withdraw(work, "")

    def settle(self, instance: Instance, work_id: str, outcome: Any) -> None:
        """What came of it: a value, or an error. Of work that it does not have: nothing happens."""
        work = instance.works.pop(work_id, None)
        if work is None:
            self.stopped(instance, work_id)
            return
        work.instance = None
        if isinstance(outcome, Unavailable) and work.is_safe:
            self._hand_on(work, outcome.message)
        elif not work.done.done():
            work.done.set_exception(outcome) if isinstance(outcome, RemitError) else work.done.set_result(outcome)
        self.fill()

    def stopped(self, instance: Instance, work_id: str) -> None:
        if work_id in instance.stopping:
            instance.stopping.discard(work_id)
            self.fill()

    def fill(self) -> None:
        """Give free slots to those who wait, in their order; what nobody can do any more has failed."""
        left: list[tuple[float, int, Work]] = []
        while self._waiting:
            entry = heapq.heappop(self._waiting)
            work = entry[2]
            if work.done.done():
                continue
            able = [one for one in self.instances.values() if work.operation in one.operations and not one.is_leaving]
            chosen = self._chosen(work, able)
            if chosen is not None:
                self._give(work, chosen)
            elif able or work.runs:
                left.append(entry)
            else:
                self._fail(work, f"No agent {self.name} is there any more.")
        self._waiting = left
        heapq.heapify(self._waiting)

    def _chosen(self, work: Work, able: list[Instance]) -> Instance | None:
        """The least loaded; one that was asked for by its id, as long as that is there."""
        if work.pinned is not None:
            pinned = [one for one in able if one.agent_id == work.pinned]
            if pinned or work.pinned in self.instances:
                able = pinned
        free = [one for one in able if one.free > 0]
        return min(free, key=lambda one: ((len(one.works) + len(one.stopping)) / one.slots, one.heard_at), default=None)

    def _give(self, work: Work, instance: Instance) -> None:
        work.runs += 1
        work.work_id = f"work_{secrets.token_hex(8)}"
        work.instance = instance
        instance.works[work.work_id] = work
        order = pb.WorkOrder()
        order.CopyFrom(work.order)
        order.work_id = work.work_id
        if not instance.send(order=order):
            self.cut_off(instance)
        elif work.is_handing_in:
            instance.send(hand_in=pb.WorkHandIn(work_id=work.work_id))

    # ---- who is there

    def joined(self, instance: Instance) -> None:
        self.instances[instance.agent_id] = instance
        self.fill()

    def cut_off(self, instance: Instance) -> None:
        """Its stream is broken, or it does not read: what it had is lost to it."""
        instance.hang_up()
        instance.outbox = None
        if instance.streamless_since is None:
            instance.streamless_since = self._now()
        lost, instance.works = instance.works, {}
        instance.stopping.clear()
        for work in lost.values():
            work.instance = None
            self._hand_on(work, f"{instance.agent_id}, which carried out {self.name}, was lost.")
        self.fill()

    def left(self, instance: Instance) -> None:
        self.instances.pop(instance.agent_id, None)
        self.cut_off(instance)

    def _hand_on(self, work: Work, why: str) -> None:
        """To another one, when doing it twice does no harm; else it is lost."""
        if work.done.done():
            return
        if not work.is_safe or work.runs >= MOST_RUNS or work.is_handing_in:
            self._fail(work, why)
            return
        work.pinned = None
        try:
            work.ctx.progress(f"{why} Its work is handed to the next one.")
        except RemitError:
            return  # it has ended meanwhile
        self._count += 1
        heapq.heappush(self._waiting, (float("-inf"), self._count, work))

    def _fail(self, work: Work, why: str) -> None:
        if not work.done.done():
            advice = "Start it again, and delegate it again; what it did until then is not known."
            work.done.set_exception(Unavailable(why, advice=advice))


# ---- A registered agent as the engine runs it, and the messages of its stream. The work itself is in `pool`, the connection i


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

    def __init__(self, spec: AgentSpec, pool: Pool, operation: str, is_safe: bool, token_for: Callable[[LiveDelegation], str]) -> None:
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
        running = CURRENT.get()
        assert running is not None
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
            started_wall=running.started_wall,
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
        outcome = _failure(said) if kind == "failed" else _result(said, work) if work is not None else None
        pool.settle(instance, said.work_id, outcome)
    elif work is not None:
        with contextlib.suppress(RemitError):  # the delegation has ended
            try:
                _apply(work, kind, said)
            except RemitError as error:
                work.ctx.progress(f"A message of the agent was refused: {error.message}")


def _apply(work: Work, kind: str, said: Any) -> None:
    ctx = work.ctx
    match kind:
        case "progress":
            ctx.progress(said.message, said.fraction if said.HasField("fraction") and math.isfinite(said.fraction) else None)
        case "output":
            ctx.emit(json_of(said.chunk))
        case "artifact":
            if (fault := _foreign_file(work, said.path)) is not None:
                raise Misused(fault)
            ctx.artifact(said.path, said.type or "data", said.summary)
        case "spent":  # negative amounts give nothing back
            cost = said.cost if math.isfinite(said.cost) else 0.0
            ctx.spend(tokens=min(MOST_TOKENS, max(0, said.tokens)), cost=max(0.0, cost))


def _foreign_file(work: Work, path: str) -> str | None:
    """Who sees a return may read its artifacts. So an agent may not hand in files of remit or git, or files that existed before its
    work."""
    ctx = work.ctx
    try:
        place, root = Path(ctx.root, path).resolve(), Path(ctx.root).resolve()
        top = place.relative_to(root).parts[:1]
        if top and top[0].casefold() in _RESERVED_FOLDERS and not place.is_relative_to(ctx.scratch.resolve()):
            return f"{path!r:.200} is not its to hand in."
        if place.stat().st_mtime < work.started_wall - FILE_CLOCK_LAG_SECONDS:
            return f"{path!r:.200} existed before its work began."
    except (OSError, ValueError, RuntimeError):
        return None  # whether it exists is checked with the return
    return None


def _result(said: pb.WorkDone, work: Work) -> Any:
    """The value; for `is_return` the return, or the error that it is invalid."""
    value = json_of(said.result) if said.HasField("result") else None
    received = read_answer(value)
    named = received.candidate.get("artifacts") if received.candidate is not None else None
    if isinstance(named, list):  # also without `is_return`: the value may be taken for a return
        if len(named) > MOST_NAMED:
            return InvalidReturn([f"artifacts: more than {MOST_NAMED}"])
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
