"""Deliberate attacks by agents and other processes: callers are still answered in time."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit import BlockingContext, Context, EventKind, Misused, Remit, Return, State, Status, StopReason, agent
from support.engine_samples import code_of, until
from support.pace import allowed

GRACE_SECONDS = 1.0
HUGE = 10**400
NAN, INFINITY = float("nan"), float("inf")


@asynccontextmanager
async def answered_within(seconds: float) -> AsyncIterator[None]:
    """Check that the answer arrives by the deadline plus its grace. Allows a third of a second for a busy machine."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began - seconds < allowed(GRACE_SECONDS + 0.3)


async def by_deadline(seconds: float, waiting: Awaitable[Return]) -> Return:
    async with answered_within(seconds):
        return await waiting


@agent("innocent")
async def innocent() -> str:
    return "done"


@agent("naps", timeout=0.3)
async def naps() -> None:
    await asyncio.sleep(60)


# ---- the scratch folder


@agent("traps", isolation="process", answers="return")
def traps(ctx: BlockingContext, name: str, victim: str = "") -> str:
    """Place a pipe, or a link to `victim`, at the path that the orchestrator writes to; then trigger the write."""
    place = ctx.scratch / name
    if not os.path.lexists(place):
        place.symlink_to(victim) if victim else os.mkfifo(place)
    if name == "harvest.json":
        ctx.emit("x" * 100_000)
        time.sleep(60)
    return "Just prose. No return."


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "victim.txt").write_text("precious")
    return root


@pytest.mark.parametrize("victim", ["", "victim.txt", "new.txt"], ids=["pipe", "link", "dangling"])
@pytest.mark.parametrize("name", ["answer.txt", "harvest.json"])
async def test_pipes_and_links_in_the_scratch_folder_are_not_followed(project: Path, name: str, victim: str) -> None:
    """The orchestrator does not hang. It writes the prose or the harvest inside the root under another name."""
    outside = project.parent
    async with Remit.open(project, agents=[traps]) as remit:
        handle = await remit.start("traps", name=name, victim=str(outside / victim) if victim else "", timeout=60)
        if name == "harvest.json":
            async for event in remit.follow(handle.session_id):
                if event.kind is EventKind.DATA:
                    break
            running = remit.engine.live()[handle.session_id]
            running.look(running.ends_at)  # simulates the clock: the deadline is a minute away
        result = await by_deadline(0 if name == "harvest.json" else 5, handle.result())
    assert code_of(result) == ("VALIDATION_FAILED" if name == "answer.txt" else "TIMEOUT")
    kept = project / result.artifacts[0].path
    assert kept.resolve().is_relative_to(project)
    assert kept.is_file()
    assert not kept.is_symlink()
    assert (outside / "victim.txt").read_text() == "precious"
    assert not (outside / "new.txt").exists()


# ---- resources of the whole program


@agent("rings", isolation="process", timeout=1.5)
def rings(ctx: BlockingContext) -> None:
    (wakeup,) = (ctx.root / ".remit" / "run").glob("*.bell")
    line = os.open(wakeup, os.O_WRONLY)
    ctx.progress("ringing")
    while True:
        os.write(line, b"!" * 4096)


async def test_wakeup_flood_delays_no_caller(project: Path) -> None:
    async with Remit.open(project, agents=[rings, innocent, naps]) as remit:
        ringing = await remit.start("rings")
        await anext(aiter(ringing.stream()))
        for _ in range(3):
            assert (await by_deadline(0, remit.delegate("innocent", timeout=1))).ok
        assert (await by_deadline(0.3, remit.delegate("naps"))).stop_reason is StopReason.DEADLINE
        assert len(asyncio.all_tasks()) < 30, "wake-ups are batched, not one task each"
        assert (await by_deadline(1.5, ringing.result())).stop_reason is StopReason.DEADLINE


# ---- hostile exceptions


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Worse(BaseException):
    def __str__(self) -> str:
        raise Worse

    __repr__ = __str__


def _raise(what: str) -> None:
    if what == "nothing left":
        next(iter(()))
    raise {"unspeakable": Unspeakable, "worse": Worse}[what]()


@agent("raises-inline")
async def raises_inline(what: str) -> None:
    _raise(what)


@agent("raises-thread")
def raises_thread(what: str) -> None:
    _raise(what)


@agent("raises-process", isolation="process")
def raises_process(what: str) -> None:
    _raise(what)


@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
async def test_exception_without_pickle_or_text_becomes_a_failed_return(project: Path, isolation: str) -> None:
    async with Remit.open(project, agents=[raises_inline, raises_thread, raises_process, innocent]) as remit:
        for what, word in (("nothing left", "StopIteration"), ("unspeakable", "Unspeakable")):
            result = await by_deadline(0.5, remit.delegate(f"raises-{isolation}", what=what, timeout=5))
            assert result.status is Status.FAILED
            assert word in result.errors[0].message
        result = await by_deadline(0.5, remit.delegate(f"raises-{isolation}", what="worse", timeout=5))
        assert (result.stop_reason, code_of(result)) == (StopReason.CRASHED, "AGENT_CRASHED")
        assert (await remit.delegate("innocent")).ok


# ---- hostile numbers


@agent("spends")
async def spends(ctx: Context, which: str) -> str:
    amount: Any = {"nan": NAN, "infinity": INFINITY, "bool": True, "huge": HUGE, "negative": -1, "text": "1"}[which]
    for field in ("tokens", "cost"):
        try:
            ctx.spend(**{field: amount})
        except Misused:
            continue
        return f"{field} took it"
    ctx.spend(tokens=6)
    await asyncio.sleep(60)
    return "went on"


@pytest.mark.parametrize("which", ["nan", "infinity", "bool", "huge", "negative", "text"])
async def test_invalid_spending_amount_never_disables_a_budget(project: Path, which: str) -> None:
    """A refused amount is not counted. The next amount over the limit still stops the agent."""
    async with Remit.open(project, agents=[spends]) as remit:
        result = await by_deadline(0, remit.delegate("spends", which=which, budget={"tokens": 5, "cost": 5}, timeout=5))
        assert (result.stop_reason, code_of(result)) == (StopReason.BUDGET, "BUDGET_EXCEEDED"), result.data
        assert (await remit.describe(result.session_id)).tokens == 6


WRONG: tuple[Any, ...] = (HUGE, -1, NAN, INFINITY, True, "3")
WRONG_TERMS: list[dict[str, Any]] = [
    *({"timeout": value} for value in (*WRONG, 0, [])),
    *({"idle": value} for value in WRONG),
    *({"budget": {name: value}} for name in ("seconds", "tokens", "cost", "alive") for value in WRONG),
    *({"priority": value} for value in (*WRONG, 99, 2.5, [])),
]


async def test_invalid_terms_are_refused_before_the_agent_runs(project: Path) -> None:
    ran = []

    @agent("counts")
    async def counts() -> None:
        ran.append(1)

    async with Remit.open(project, agents=[counts]) as remit:
        for terms in WRONG_TERMS:
            with contextlib.suppress(Misused):
                result = await remit.delegate("counts", **terms)
                assert (result.stop_reason, code_of(result)) == (StopReason.REFUSED, "INVALID_PARAMETERS"), terms
        assert await remit.live() == []
    assert ran == []


# ---- database locked by another process

HOLDER = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def database_locked(root: Path) -> Iterator[None]:
    """Lock the database from another process."""
    command = [sys.executable, "-c", HOLDER, str(root / ".remit" / "remit.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield
        finally:
            holder.kill()


@agent("works")
async def works(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


async def test_locked_database_delays_no_caller_and_loses_no_outcome(project: Path) -> None:
    async with Remit.open(project, agents=[works]) as remit:
        on_time, too_slow = await remit.start("works", seconds=0.4, timeout=5), await remit.start("works", seconds=60, timeout=0.5)
        with database_locked(project):
            finished, stopped, unrecorded = await asyncio.gather(
                by_deadline(0.4, on_time.result()),
                by_deadline(0.5, too_slow.result()),
                by_deadline(0.5, remit.delegate("works", seconds=0, timeout=0.5)),
            )
            assert finished.data == "done"
            assert any("Not recorded yet" in warning for warning in finished.warnings)
            assert stopped.stop_reason is unrecorded.stop_reason is StopReason.DEADLINE
            assert any("did not run" in warning for warning in unrecorded.warnings)
        await until(lambda: not remit.store.live())
        assert (await remit.describe(on_time.session_id)).state is State.COMPLETED
        assert (await remit.describe(too_slow.session_id)).state is State.TIMEOUT
        assert (await remit.delegate("works", seconds=0)).ok
    with contextlib.closing(sqlite3.connect(project / ".remit" / "remit.db")) as database:
        assert database.execute("SELECT count(*) FROM delegations WHERE settled_at IS NULL").fetchone() == (0,)
