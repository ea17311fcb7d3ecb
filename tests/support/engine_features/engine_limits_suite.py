"""Promises of every `Engine` about adaptive limits: what is learned, when it is used, and what it never overrides."""

import asyncio
from pathlib import Path
from typing import Any

from remit import Context, RecordDelegation, Remit, State, StopReason, agent
from remit.testing.store_suite import outcome, record, said
from support.engine_samples import SOON_SECONDS, OpenRemit, promise, until

RUNS = 30


def _remember(remit: Remit, name: str, seconds: float, *, state: State = State.COMPLETED, every: float = 10.0) -> None:
    """Record runs of `name` with this duration and heartbeat interval."""
    for number in range(1, RUNS + 1):
        number += 1000 * len(name)
        began = 1000.0 + number
        count = int(seconds / every)
        mine = {"agent": name, "path": ("orchestrator", name), "owner": remit.owner.owner_id}
        remit.store.apply([RecordDelegation(record(number, timeout_seconds=3600.0, **mine))])
        remit.store.apply([said(number, 8 + n, at=began + every * (n + 1), chunk=n) for n in range(count)])
        remit.store.apply([outcome(number, state, at=began + seconds, chunks=count)])


async def _learn(remit: Remit, asked: Any) -> None:
    """With a store on a server, the first use only begins to read what was learned."""
    end = asyncio.get_running_loop().time() + SOON_SECONDS
    while (await remit.describe((await remit.delegate(asked)).session_id)).limits_reason is None:
        assert asyncio.get_running_loop().time() < end, "nothing was learned"
        await asyncio.sleep(0.01)


def _agents() -> list[Any]:
    @agent("usual")
    async def usual(ctx: Context) -> list[float | None]:
        return [round(ctx.remaining), ctx.backend.delegation.idle_seconds]

    @agent("declared", timeout=100, idle=50)
    async def declared(ctx: Context) -> list[float | None]:
        return [round(ctx.remaining), ctx.backend.delegation.idle_seconds]

    @agent("lead", timeout=500)
    async def lead(ctx: Context) -> Any:
        return (await ctx.delegate("usual")).data

    return [usual, declared, lead]


@promise
async def learned_limits_are_used_when_adaptive_limits_is_on(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, _agents(), adaptive_limits="on") as remit:
        for name in ("usual", "declared"):
            _remember(remit, name, 2000.0, every=20.0)
        await _learn(remit, "usual")
        done = await remit.delegate("usual")
        assert done.data == [4000, 60.0]
        assert "learned from 3" in ((await remit.describe(done.session_id)).limits_reason or "")
        assert (await remit.delegate("usual", timeout=9, idle=5)).data == [9, 5.0], "the caller's limit is used"
        assert (await remit.delegate("declared")).data == [100, 50.0], "the agent's declared limit is used"
        assert (await remit.delegate("lead")).data == [500, 60.0], "the limit does not exceed the caller's remaining time"


@promise
async def learned_limits_are_only_noted_by_default(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, _agents()) as remit:
        _remember(remit, "usual", 2000.0, every=20.0)
        await _learn(remit, "usual")
        done = await remit.delegate("usual")
        assert done.data == [3600, None]
        reason = (await remit.describe(done.session_id)).limits_reason or ""
        assert "timeout 4000 s and idle 60 s with adaptive_limits on" in reason
    async with open_remit(root, _agents(), adaptive_limits="off") as remit:
        _remember(remit, "declared", 2000.0)
        assert (await remit.describe((await remit.delegate("declared")).session_id)).limits_reason is None


@promise
async def nothing_is_learned_from_few_runs_or_from_silence(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, _agents(), adaptive_limits="on") as remit:
        _remember(remit, "usual", 30.0, state=State.TIMEOUT, every=100.0)
        assert (await remit.delegate("usual")).data == [3600, None]
        _remember(remit, "lead", 100.0, every=1000.0)
        assert (await remit.describe((await remit.delegate("lead")).session_id)).limits_reason is None


@promise
async def a_run_that_falls_silent_is_stopped_at_the_learned_limit(open_remit: OpenRemit, root: Path) -> None:
    began = asyncio.Event()

    @agent("talker")
    async def talker(ctx: Context, hangs: bool = False) -> None:
        began.set()  # recorded before it runs
        ctx.emit("begin")
        await asyncio.sleep(60 if hangs else 0)

    async with open_remit(root, [talker], adaptive_limits="on") as remit:
        _remember(remit, "talker", 60.0, every=2.0)
        await _learn(remit, "talker")
        began.clear()
        waiting = asyncio.create_task(remit.delegate("talker", hangs=True))
        await until(began.is_set)
        (live,) = await remit.live()
        assert live.idle_seconds == 30.0
        await remit.cancel(live.session_id)
        assert (await waiting).stop_reason is StopReason.CANCELLED
