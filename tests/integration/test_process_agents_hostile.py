"""Agents in separate processes: answers, errors, the end of their processes, and access to models."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from remit import Context, Remit, RemitError, Stopped, agent
from remit.testing import Say, ScriptedModels
from support.census import processes_left
from support.pace import until, wait_until
from support.processes import descendants, is_alive, mark_of, process_start


@agent("large", isolation="process")
def large(megabytes: int) -> str:
    return "x" * (megabytes * 1024 * 1024)


@agent("no.json", isolation="process")
def no_json() -> object:
    return object()


@agent("whose", isolation="process")
def whose() -> tuple[int, str, str | None]:
    """Its pid, the session of its environment, and its mark."""
    return os.getpid(), os.environ["REMIT_SESSION"], mark_of(os.getpid())


@agent("saves", isolation="process")
async def saves(ctx: Context) -> None:
    ctx.progress("begun")
    try:
        await asyncio.sleep(600)
    finally:
        await ctx.checkpoint("saved on the way out")


@agent("notes", isolation="process")
def notes(path: str) -> None:
    Path(path).write_text("begun")
    try:
        time.sleep(600)
    except Stopped:
        Path(path).write_text("saved")
        raise


@agent("prying.ask", isolation="process")
async def pry(ctx: Context) -> str:
    """An agent of the user that tries the model access of the built-in agents."""
    try:
        return str(await ctx.backend.call("write", {"prompt": "Spend money."}))  # type: ignore[attr-defined]
    except RemitError as error:
        return error.code


AGENTS = [large, no_json, whose, saves, notes]


async def test_large_answer_arrives_and_an_oversized_or_non_json_one_is_refused(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        assert (await remit.delegate("large", megabytes=1)).ok
        for name, parameters, fault in (("large", {"megabytes": 70}, "file"), ("no.json", {}, "JSON")):
            done = await remit.delegate(name, parameters=parameters)
            assert not done.ok
            assert fault in done.errors[0].message


async def test_each_delegation_has_a_process_with_its_mark_and_session(tmp_path: Path) -> None:
    before = set(descendants(os.getpid()))
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        returns = await asyncio.gather(*(remit.delegate("whose") for _ in range(5)))
        for done in returns:
            assert done.data[1] == done.session_id
            assert done.data[2].strip().endswith(done.session_id)
        assert len({done.data[0] for done in returns}) == 5
    assert set(descendants(os.getpid())) <= before


async def test_cancelled_agent_saves_its_work(tmp_path: Path) -> None:
    note = tmp_path / "note"
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        handle = await remit.start("saves", timeout=60)
        await anext(aiter(handle.stream()))
        await handle.cancel("enough")
        assert (await handle.result()).data == {"checkpoint": "saved on the way out"}
        handle = await remit.start("notes", path=str(note), timeout=60)
        await until(note.exists)
        await handle.cancel("enough")
        assert note.read_text() == "saved"
        await until(lambda: not processes_left(remit))


async def test_cancellation_during_startup_leaves_no_process(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        for delay in (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008):
            handle = await remit.start("saves", timeout=60)
            await asyncio.sleep(delay)
            await handle.cancel("enough")
        await until(lambda: not processes_left(remit))


async def test_user_agent_has_no_access_to_models(tmp_path: Path) -> None:
    async with ScriptedModels(lambda request: Say("No.")) as server:
        known = {"scripted": {"kind": "openai", "url": server.openai_url, "model": "scripted"}}
        async with Remit.open(tmp_path, agents=[pry], settings={"model": "scripted", "models": known}) as remit:
            done = await remit.delegate("prying.ask")
        assert (done.data, server.requests) == ("TOOL_UNAVAILABLE", [])


PARENT = """
import asyncio, sys
from remit import Remit
from support.hostile import hostile_agents

async def main():
    async with Remit.open(sys.argv[1], agents=hostile_agents()) as remit:
        names = ["busy-loop", "ignore-sigterm", "daemonise", "fork-many"]
        await asyncio.gather(*(remit.delegate(f"{name}.process", timeout=60) for name in names))

asyncio.run(main())
"""


def test_no_process_survives_kill_9_of_the_main_process(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], env=environment)
    wait_until(lambda: len(descendants(parent.pid)) >= 1 + 4 * 2 + 2 + 20)
    seen: list[tuple[int, Any]] = [(pid, process_start(pid)) for pid in descendants(parent.pid)]
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not any(is_alive(pid, started) for pid, started in seen))
