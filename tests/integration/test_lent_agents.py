"""Agents lent by an attached process: the owner of the tree authorizes, times and records them; that process runs them."""

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tree_project import PYTHON, clean_environment, make_project
from workspace_project import run

from remit import BlockingContext, Context, FunctionAgent, Misused, Remit, State, agent
from support.pace import allowed

SCRIPT = """
import asyncio, os, sys, time
from remit import BlockingContext, Context, Remit, RemitError, agent

@agent("mine", timeout=20)
async def mine(ctx: Context, word: str) -> dict:
    ctx.spend(tokens=7)
    child = await ctx.delegate("echo", word=word)
    async with Remit.open("/") as inner:
        nested = await inner.delegate("echo", word="nested")
    same = await remit_here.delegate("echo", word="same remit")
    depths = [one.metadata.delegation_depth for one in (child, nested, same)]
    return {"path": list(ctx.path), "depths": depths, "tokens_left": ctx.budget.tokens, "pid": os.getpid()}

@agent("apart", isolation="process")
def apart(ctx: BlockingContext, word: str) -> list:
    from remit import run
    return [ctx.delegate("echo", word=word).data, run("echo", root="/", word=word).metadata.delegation_depth, os.getppid() != int(word)]

@agent("stubborn")
async def stubborn(ctx: Context) -> str:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ctx_ended.append(1)

@agent("gentle", timeout=20)
async def gentle(ctx: Context) -> str:
    await ctx.wait_hand_in()
    return "handed in"

@agent("raises")
async def raises() -> None:
    raise ValueError("it broke")

@agent("dies")
async def dies() -> None:
    os.kill(os.getpid(), 9)

ctx_ended = []

async def main():
    global remit_here
    async with Remit.open("/tmp", agents=[mine, apart, stubborn, gentle, raises, dies]) as remit_here:
        for words in sys.argv[1:]:
            name, _, rest = words.partition(":")
            asked = eval(rest or "{}")
            try:
                result = await remit_here.delegate(name, **asked)
                print(result.to_json(), flush=True)
            except RemitError as error:
                print(repr((type(error).__name__, error.code)), flush=True)
        if ctx_ended:
            os._exit(0)  # the agent swallows cancellation and would keep the event loop running

if __name__ == "__main__":
    asyncio.run(main())
"""


@agent("program", timeout=60)
async def program(ctx: Context, script: str, words: list[str]) -> list[Any]:
    """Run a program that lends agents."""
    command = [PYTHON, script, *words]
    started = await asyncio.create_subprocess_exec(
        *command, env={**clean_environment(), **ctx.environment()}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = await started.communicate()
    except asyncio.CancelledError:
        started.kill()
        raise
    return [started.returncode, started.pid, [_read(line) for line in out.decode().splitlines()], err.decode()[-2000:]]


def _read(line: str) -> Any:
    from pydantic_core import from_json

    return from_json(line) if line.startswith("{") else line


async def ran(tmp_path: Path, *words: str, **options: Any) -> tuple[Any, list[Any], Remit]:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    async with Remit.open(make_project(tmp_path / "project"), agents=[program]) as remit:
        result = await remit.delegate("program", script=str(script), words=list(words), **options)
        return result, await remit.tree(result.session_id), remit


async def test_lent_agent_is_recorded_by_the_owner_and_runs_in_the_client(tmp_path: Path) -> None:
    result, tree, remit = await ran(tmp_path, 'mine:{"word": "w"}', 'apart:{"word": "1"}', budget={"tokens": 100})
    code, pid, (mine, apart), err = result.data
    assert (code, err) == (0, "")
    assert mine["data"] == {"path": ["orchestrator", "program", "mine"], "depths": [3, 3, 3], "tokens_left": 93, "pid": pid}
    assert apart["data"] == ["1", 3, True], "also in a process of its own"
    assert [(r.agent, r.depth) for r in tree if r.agent != "echo"] == [("program", 1), ("mine", 2), ("apart", 2)]
    assert {r.owner for r in tree} == {remit.owner.owner_id}


async def test_invalid_parameters_are_refused_and_recorded(tmp_path: Path) -> None:
    """A refusal runs nothing and is recorded."""
    result, tree, _ = await ran(tmp_path, 'mine:{"wrod": "w"}', "raises", 'nobody:{"a": 1}')
    _, _, (mine, raises, nobody), _ = result.data
    assert [e["code"] for e in mine["errors"]] == ["INVALID_PARAMETERS"]
    assert "wrod" in mine["summary"]
    assert "it broke" in raises["summary"]
    assert [e["code"] for e in nobody["errors"]] == ["INVALID_TARGET"]
    assert [(r.agent, r.state) for r in tree[1:]] == [("mine", State.REFUSED), ("raises", State.FAILED), ("nobody", State.REFUSED)]


async def test_lent_agent_crashes_with_its_process(tmp_path: Path) -> None:
    result, tree, _ = await ran(tmp_path, "dies")
    assert result.data[0] == -9
    (dies,) = tree[1:]
    assert (dies.state, dies.result.errors[0].code) == (State.FAILED, "AGENT_CRASHED")
    assert "has ended or closed the connection" in dies.result.errors[0].message
    assert result.warnings[0].startswith("A child failed: "), "a failed child is reported"


async def test_owner_enforces_the_deadline_of_a_lent_agent(tmp_path: Path) -> None:
    started_at = time.monotonic()
    result, tree, _ = await ran(tmp_path, 'stubborn:{"timeout": 1}', 'gentle:{"timeout": 2}', timeout=30)
    _, _, (stubborn, gentle), err = result.data
    assert (stubborn["status"], stubborn["stop_reason"]) == ("partial", "deadline"), err
    assert (gentle["status"], gentle["data"]) == ("completed", "handed in")
    assert [r.state for r in tree[1:]] == [State.TIMEOUT, State.COMPLETED]
    assert time.monotonic() - started_at < allowed(20)


async def test_remit_opened_outside_an_agent_is_refused_inside(tmp_path: Path) -> None:
    """Also of another project, and from a thread: its delegations would be outside the tree."""

    @agent("uses")
    async def uses() -> int:
        with pytest.raises(Misused, match=r"uses cannot delegate through a Remit that was opened outside it"):
            await other.delegate("echo", word="w")
        async with Remit.open(other.root) as own:
            return (await own.delegate("echo", word="w")).metadata.delegation_depth

    @agent("uses.thread")
    def uses_thread() -> None:
        with pytest.raises(Misused, match="opened outside it"):
            asyncio.run_coroutine_threadsafe(other.start("echo", word="w"), loop).result()

    loop = asyncio.get_running_loop()
    async with Remit.open(make_project(tmp_path / "other")) as other:
        async with Remit.open(make_project(tmp_path / "project"), agents=[uses, uses_thread]) as remit:
            assert (await remit.delegate("uses")).data == 2
            assert (await remit.delegate("uses.thread")).ok
        assert await other.history() == []


async def test_cancelling_the_caller_stops_its_lent_agents(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waits_for_ever(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    @agent("lends")
    async def lends() -> None:
        async with Remit.open("/", agents=[agent("waits-for-ever")(waits_for_ever)]) as inner:
            await inner.delegate("waits-for-ever")

    async with Remit.open(make_project(tmp_path), agents=[lends]) as remit:
        handle = await remit.start("lends")
        await begun.wait()
        await remit.cancel(handle.session_id)
        await asyncio.wait_for(ended.wait(), 60)
        assert {r.state for r in await remit.tree(handle.session_id)} == {State.CANCELLED}
        assert await remit.live() == []


@agent("outer")
async def outer() -> Any:
    async with Remit.open("/", agents=[agent("outer")(my_own)]) as inner:
        return [error.code for error in (await inner.delegate("outer", word="w")).errors]


@agent("brings")
async def brings() -> Any:
    async with Remit.open("/", agents=[agent("echo")(my_own)]) as inner:
        return (await inner.delegate("echo", word="w")).data


@agent("late")
async def late() -> Any:
    async with Remit.open("/") as inner:
        inner.register(agent("my-own", isolation="thread")(_sync))
        return (await inner.delegate("my-own", word="w")).data


@agent("opens.two")
async def opens_two() -> Any:
    async def lent() -> str:
        with pytest.raises(Misused, match="lent cannot delegate through a Remit that was opened outside it"):
            await second.delegate("echo", word="w")
        return "could not"

    async with Remit.open("/") as second, Remit.open("/", agents=[agent("lent")(lent)]) as first:
        return (await first.delegate("lent")).data


async def my_own(word: str) -> str:
    return f"mine: {word}"


def _sync(ctx: BlockingContext, word: str) -> list[Any]:
    return [ctx.delegate("echo", word=word).data, os.getpid()]


@pytest.mark.parametrize(
    ("first", "expected"),
    [(outer, ["CYCLE_DETECTED"]), (brings, "mine: w"), (late, ["w", os.getpid()]), (opens_two, "could not")],
    ids=[
        "counts for cycles",
        "replaces no agent of the same name",
        "can be registered later",
        "cannot use another Remit of its caller",
    ],
)
async def test_lent_agent(tmp_path: Path, first: FunctionAgent, expected: Any) -> None:
    assert (await run(make_project(tmp_path), first)).data == expected
