"""Registered agents of one name as a pool: its instances, their work, and the work that waits for a free instance.

A `Work` is one run of a delegation. It goes to the least loaded instance, or waits in order of priority. Independent of the directory, the
protobuf services (`registry`) and the engine: whoever performs a delegation (`remote_agent`) waits for `Work.done`.
"""

import asyncio
import heapq
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.core.agents import AgentSpec
from remit.core.errors import Refused, RemitError, Unavailable
from remit.runtime.context import Context

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
