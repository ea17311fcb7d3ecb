"""Groups: an agent that hands its work to one of several members, chosen by success, load, cost or order, and hedges slow ones.

A group acts for its caller: its member has the group's depth and place in the path. The choice with its scores is an event of the group and
part of its return, from which later choices are learned."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from remit.agents.definition import Definition, Hedge
from remit.core.adaptive import percentile
from remit.core.agents import AgentSpec, only_reads, works_apart
from remit.core.choice import By, ChoiceOutcome, Experience, Score, rank
from remit.core.context import Context, Handle
from remit.core.delegation import TaskContext
from remit.core.errors import Misused
from remit.core.ports import Store
from remit.core.record import HistoryQuery, Record
from remit.core.result import Return, StopReason
from remit.runtime.workspace_cleanup import discard_losers
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.agents.executors import ExecutorDeps

ROUTE = "route"
"""Metadata key of a group's return: the chosen member, the reason, and the outcome."""
REMEMBERED = 1_000
HEDGE_SAMPLES = 20
_NO_OUTCOME = (StopReason.CANCELLED, StopReason.REFUSED)


class Project(Protocol):
    """The parts of the project that a group uses."""

    store: Store
    directory: "Directory"

    async def live(self) -> list[Record]: ...


def is_repeatable(spec: AgentSpec, ctx: Context) -> bool:
    """Whether a second run beside or after the first is safe: it only reads, works in its own folder, or declares retries."""
    return only_reads(spec) or spec.retries > 0 or (works_apart(spec) and ctx.workspace == ctx.root)


def context_of_task(task: TaskContext | None) -> str:
    """The context that a choice is learned for."""
    if task is None:
        return "general"
    parts = (task.language or "general", task.extra.get("operation"), task.complexity if task.complexity != "simple" else None)
    return " ".join(str(part) for part in parts if part)


def experience_of(records: Iterable[Record]) -> Experience:
    """Experience from the delegations of a group, oldest first."""
    experience = Experience()
    for record in records:
        route = None if record.result is None else record.result.metadata.extra.get(ROUTE)
        if not isinstance(route, Mapping):
            continue
        for one in route.get("tried", ()):
            if one.get("counts"):
                experience.note(ChoiceOutcome(one["member"], route["context"], bool(one["success"]), float(one.get("cost", 0.0))))
    return experience


def read_experience(store: Store, group: str) -> Experience:
    """Blocking."""
    return experience_of(reversed(store.history(HistoryQuery(agent=group, limit=REMEMBERED))))


class GroupAgent:
    """`[agents.NAME] group = […]`."""

    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        self.spec = definition.spec
        self.members = definition.group
        self.by = definition.by
        self.hedge = definition.hedge
        self._project: Project = deps.delegator  # type: ignore[assignment]  # a Remit is both
        self._experience: Experience | None = None
        self._chance = random.Random()
        self._starts = self._hedged = 0

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        unknown = [name for name in self.members if self._project.directory.find(name) is None]
        if len(unknown) == len(self.members):
            fault = f"No member of the group {self.spec.name} exists: {', '.join(unknown)}."
            raise Misused(fault, code="INVALID_TARGET", advice="`remit agents` lists all.")
        return parameters

    async def rank(self, task: TaskContext | None) -> list[Score]:
        if self._experience is None:
            self._experience = await off_loop(read_experience, self._project.store, self.spec.name)
        known = [name for name in self.members if self._project.directory.find(name) is not None]
        loads = Counter(record.agent for record in await self._project.live()) if self.by is not By.ORDER else Counter[str]()
        return rank(self.by, known, context_of_task(task), self._experience, loads, self._chance)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        scores = await self.rank(ctx.task)
        route: dict[str, Any] = {
            "chosen": scores[0].member,
            "by": str(self.by),
            "context": context_of_task(ctx.task),
            "scores": {one.member: {"score": round(one.value, 4), "why": one.words} for one in scores},
            "tried": [],
        }
        ctx.progress(f"{scores[0].member} by {self.by}: " + "; ".join(f"{one.member} {one.words}" for one in scores))
        for number, score in enumerate(scores):
            result = await self._run(ctx, score.member, arguments)
            await self._note(result, score.member, route)
            if result.ok or number + 1 == len(scores) or ctx.hand_in or not self._may_be_followed(ctx, result, score.member):
                break
            ctx.progress(f"{score.member} did not complete; {scores[number + 1].member} is next")
        route["chosen"] = score.member
        return {**result.forwarded(), "metadata": {ROUTE: route}}

    def _may_be_followed(self, ctx: Context, result: Return, member: str) -> bool:
        """Whether another member may do the work that this one did not complete."""
        if result.stop_reason is StopReason.REFUSED:
            return True  # nothing has run
        spec = self._spec(member)
        return result.stop_reason is not StopReason.CANCELLED and spec is not None and is_repeatable(spec, ctx)

    def _spec(self, member: str) -> AgentSpec | None:
        found = self._project.directory.find(member)
        return None if found is None else found.spec

    async def _note(self, result: Return, member: str, route: dict[str, Any]) -> None:
        """Success means completed with acceptance passed. Cancelled and refused runs do not count."""
        counts = result.stop_reason not in _NO_OUTCOME
        record = await off_loop(self._project.store.get, result.session_id)
        cost = 0.0 if record is None else record.cost
        route["tried"].append({"member": member, "success": result.ok, "counts": counts, "cost": cost, "session": result.session_id})
        if counts and self._experience is not None:
            self._experience.note(ChoiceOutcome(member, route["context"], result.ok, cost))

    # ---- running a member, and a second run if it is slow

    async def _run(self, ctx: Context, member: str, arguments: Mapping[str, Any]) -> Return:
        delegation = ctx.backend.delegation
        options: dict[str, Any] = {"parameters": dict(arguments), "accept": delegation.accept, "idle": delegation.idle_seconds}
        spec, self._starts = self._spec(member), self._starts + 1
        patience = await self._patience(member) if self.hedge is not None and spec is not None and is_repeatable(spec, ctx) else None
        if patience is None:
            return await ctx.delegate(member, **options)
        first = await ctx.start(member, **options)
        waiting = asyncio.create_task(first.result())
        await asyncio.wait([waiting], timeout=patience)
        if waiting.done() or not may_hedge(self.hedge, self._starts, self._hedged):
            return await waiting
        self._hedged += 1
        ctx.progress(f"{member} takes longer than {patience:.1f} s: a second run is started")
        second = await ctx.start(member, **options, cache="off")  # a run of its own: the cache would join it to the first
        return await _first_completed(ctx, {waiting: first, asyncio.create_task(second.result()): second})

    async def _patience(self, member: str) -> float | None:
        """None: too little data about its duration."""
        assert self.hedge is not None
        return patience_of([one.seconds for one in await off_loop(self._project.store.durations, member) if one.is_completed], self.hedge)


def patience_of(seconds: list[float], hedge: Hedge) -> float | None:
    """How long a run may take before a second one starts."""
    return percentile(seconds, int(hedge.after[1:]) / 100) if len(seconds) >= HEDGE_SAMPLES else None


def may_hedge(hedge: Hedge | None, starts: int, hedged: int) -> bool:
    """Whether the share of extra runs allows it."""
    return hedge is not None and hedged + 1 <= hedge.extra * max(starts, 1 / hedge.extra if hedge.extra else 1)


async def _first_completed(ctx: Context, runs: "dict[asyncio.Task[Return], Handle]") -> Return:
    """The return of the first that completes; the others are cancelled, and their workspaces removed."""
    left = set(runs)
    while True:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        finished = next((task.result() for task in done if task.result().ok), None)
        if finished is None and left:
            continue
        for task in left:
            await runs[task].cancel("another run of it completed first")
        await discard_losers(ctx, [runs[task].session_id for task in left])
        return finished or next(iter(done)).result()
