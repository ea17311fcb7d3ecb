"""Several processes accept requests of one principal at the same moment: together they never pass its limits."""

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit import Budget, HistoryQuery, Limits, Remit, agent
from support.postgres import new_schema
from support.server import Call, Principal, Service

PROCESSES = 3
REQUESTS = 12
RACER = """
import asyncio, json, sys, time
from remit import Context, Remit, agent
from remit.core.budget import Budget, Limits
from remit.server.service import Call, Service
from remit.server.tokens import Principal

@agent("leaf")
async def leaf(ctx: Context) -> list[float]:
    began = time.monotonic()
    await asyncio.sleep(0.02)
    return [began, time.monotonic()]

@agent("branch")
async def branch(ctx: Context) -> int:
    await asyncio.gather(*(ctx.delegate("leaf") for _ in range(2)))
    return 1

@agent("spender", timeout=60)
async def spender(ctx: Context) -> int:
    for n in range(100):
        ctx.spend(tokens=10)
        await ctx.checkpoint(n)
    return 1

async def main() -> None:
    given = json.loads(sys.argv[2])
    async with Remit.open(sys.argv[1], agents=[leaf, branch, spender], trust=True) as remit:
        service = Service(remit)
        budget = Budget(Limits(**given["limits"]), opened_at=remit.loop.time())
        call = Call(principal=Principal(name="token:ci", budget=budget), api="http")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        async def ask() -> str:
            handle = await service.begin(call, {"target": given["agent"], "parameters": {}})
            done = await handle.result()
            return done.errors[0].code if done.errors else str(done.status)

        print(json.dumps(await asyncio.gather(*(ask() for _ in range(given["requests"])))), flush=True)

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url
        (tmp_path / "remit.toml").write_text(f'[store]\nurl = "{url}"\nschema = "{new_schema()}"\n')
    return tmp_path


async def race(project: Path, agent: str, **limits: Any) -> list[str]:
    """How each request ended."""
    given = json.dumps({"agent": agent, "limits": limits, "requests": REQUESTS})
    async with contextlib.AsyncExitStack() as stack:
        racers = []
        for _ in range(PROCESSES):
            pipe = subprocess.PIPE
            racer = await asyncio.create_subprocess_exec(sys.executable, "-c", RACER, str(project), given, stdin=pipe, stdout=pipe)
            stack.callback(lambda racer=racer: racer.kill() if racer.returncode is None else None)
            racers.append(racer)
        for racer in racers:
            assert racer.stdout is not None
            assert await racer.stdout.readline() == b"ready\n"
        said = await asyncio.wait_for(asyncio.gather(*(racer.communicate(b"go\n") for racer in racers)), 120)
    return [code for out, _ in said for code in json.loads(out)]


async def test_processes_never_begin_more_than_a_principal_may(project: Path) -> None:
    ended = await race(project, "branch", delegations=17)
    async with Remit.open(project, recover=False) as remit:
        begun = [one for one in await remit.history(limit=500, principal="token:ci") if one.state != "refused"]
        assert len(begun) == 17, "all of it, and no more"
        assert (await remit.engine.principal_budget("token:ci")).delegations == 17
    assert len(ended) == PROCESSES * REQUESTS
    assert set(ended) <= {"completed", "BUDGET_EXCEEDED"}


async def test_processes_never_have_more_alive_than_a_principal_may(project: Path) -> None:
    ended = await race(project, "leaf", alive=3)
    assert set(ended) == {"completed", "BUDGET_EXCEEDED"}
    async with Remit.open(project, recover=False) as remit:
        ran = [one.result.data for one in await remit.history(limit=500, principal="token:ci") if one.result and one.result.data]
        assert ran
        for began, _ in ran:
            assert sum(first <= began < last for first, last in ran) <= 3


async def test_spending_in_one_process_stops_work_in_another(project: Path) -> None:
    """Each is stopped by its first spending that passes the limit, also if others spent the rest."""
    ended = await race(project, "spender", tokens=400)
    assert set(ended) == {"BUDGET_EXCEEDED"}
    async with Remit.open(project, recover=False) as remit:
        spenders = [one for one in await remit.history(limit=500, principal="token:ci") if one.state != "refused"]
        spent = sum(one.tokens for one in spenders)
        assert spent == 400 + 10 * len(spenders)
        assert (await remit.engine.principal_budget("token:ci")).tokens == spent


async def test_limits_that_were_removed_are_forgotten_with_the_next_request(tmp_path: Path) -> None:
    @agent("quick")
    async def quick() -> int:
        return 1

    async def asked(remit: Remit, limits: Limits | None) -> str:
        budget = None if limits is None else Budget(limits, opened_at=remit.loop.time())
        handle = await Service(remit).begin(Call(principal=Principal(name="token:ci", budget=budget), api="http"), {"target": "quick"})
        done = await handle.result()
        return done.errors[0].code if done.errors else str(done.status)

    async with Remit.open(tmp_path, agents=[quick]) as remit:
        assert [await asked(remit, Limits(delegations=1)) for _ in range(2)] == ["completed", "BUDGET_EXCEEDED"]
    async with Remit.open(tmp_path, agents=[quick]) as remit:
        assert [await asked(remit, None) for _ in range(2)] == ["completed"] * 2
        assert await asked(remit, Limits(delegations=3)) == "BUDGET_EXCEEDED"
        assert len(remit.store.history(HistoryQuery(principal="token:ci"))) == 5
