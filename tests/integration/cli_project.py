"""A project with agents for tests of the command line, and `remit` run in it."""

import subprocess
import time
from pathlib import Path
from typing import Any

from support.cli import Result, run, run_json, start

AGENTS = '''
import asyncio, time
from remit import BlockingContext, Context, agent

@agent("echo", timeout=20)
async def echo(ctx: Context, text: str, times: int = 1) -> str:
    """Say it again."""
    return " ".join([text] * times)

@agent("slow", timeout=60)
async def slow(ctx: Context, seconds: float = 30.0) -> str:
    """Sleeps in a child."""
    ctx.progress("begun", 0.25)
    (ctx.root / "half.txt").write_text("half")
    ctx.artifact("half.txt", "data", "half of it")
    await ctx.delegate("sleeper", seconds=seconds)
    return "Slept well."

@agent("sleeper")
async def sleeper(ctx: Context, seconds: float) -> str:
    ctx.progress("asleep")
    await asyncio.sleep(seconds)
    return "Awake."

@agent("broken")
async def broken() -> str:
    raise ValueError("it [bold]broke[/bold]")

@agent("blocked")
async def blocked() -> dict:
    error = {"type": "permission", "message": "No key.", "code": "NO_KEY", "recoverable": True, "recommendation": "Get one."}
    return {"status": "blocked", "summary": "A key is missing. It must be created.", "artifacts": [], "errors": [error]}

@agent("again", resumable=True, timeout=60)
async def again(ctx: Context) -> str:
    run = (ctx.saved or 0) + 1
    await ctx.checkpoint(run)
    ctx.progress(f"run {run}")
    if run == 1:
        await asyncio.sleep(50)
    return f"Done in run {run}."

@agent("long", resumable=True, timeout=60)
async def long(ctx: Context) -> str:
    ctx.progress("begun")
    await asyncio.sleep(50)
    return "Done."
'''


def remit(project: Path, *arguments: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Result:
    return run(*arguments, cwd=project, stdin=stdin, env=env)


def remit_json(project: Path, *arguments: str, code: int = 0, stdin: str | None = None) -> Any:
    return run_json(*arguments, cwd=project, code=code, stdin=stdin)


def started(project: Path, *arguments: str) -> "subprocess.Popen[str]":
    return start(*arguments, cwd=project)


def make_project(folder: Path) -> Path:
    (folder / ".remit" / "agents").mkdir(parents=True)
    (folder / ".remit" / "agents" / "mine.py").write_text(AGENTS)
    return folder


def wait_for_line(process: "subprocess.Popen[str]", text: str) -> float:
    """The time at which a line with `text` appeared on stderr."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return time.monotonic()
    raise AssertionError(f"{text!r} was not printed")
