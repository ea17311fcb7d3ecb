"""Agents and policy for the API checks. The agents leave marks in the project.

Marks are lines of files in `.remit/marks/`, which no delegation harvests. They show what really ran, in whichever process.
"""

import asyncio
from pathlib import Path
from typing import Any

from remit import Context, agent

POLICY = """
permit (principal, action, resource);
forbid (principal, action, resource == Agent::"forbidden");
"""
"""For `.remit/policy.cedar`."""


def folder(root: Path) -> Path:
    return root / ".remit" / "marks"


def marks(root: Path, name: str) -> list[str]:
    try:
        return (folder(root) / name).read_text().split()
    except OSError:
        return []


def _mark(ctx: Context, name: str, word: str) -> None:
    folder(ctx.root).mkdir(parents=True, exist_ok=True)
    with (folder(ctx.root) / name).open("a") as file:
        file.write(f"{word}\n")


@agent("echo", isolation="inline")
async def echo(ctx: Context, value: Any = None, mark: str = "") -> Any:
    """Returns its input inside an object."""
    if mark:
        _mark(ctx, mark, "ran")
    return {"value": value, "depth": ctx.depth, "path": list(ctx.path)}


@agent("text.count", isolation="inline")
async def count(ctx: Context, text: str, min_length: int = 0) -> int:
    """Counts the words of a text."""
    return len([word for word in text.split() if len(word) >= min_length])


@agent("ends", isolation="inline")
async def ends(ctx: Context, how: str) -> dict[str, Any]:
    """Ends with the requested outcome."""
    errors = (
        []
        if how == "completed"
        else [{"type": "execution", "code": "BUILD_ERROR", "message": "So it was asked for.", "recommendation": "Look."}]
    )
    return {"status": how, "summary": f"It ended {how}. That is all.", "errors": errors, "data": {"how": how}}


@agent("breaks", isolation="inline")
async def breaks(ctx: Context) -> None:
    """Raises."""
    raise ValueError("it broke")


@agent("hangs", isolation="inline", timeout=60)
async def hangs(ctx: Context, mark: str, seconds: float = 50.0) -> str:
    """Sends heartbeats until it is stopped or the given time has passed."""
    _mark(ctx, mark, "begun")
    ctx.progress("begun", 0.5)
    try:
        for _ in range(int(seconds / 0.02)):
            await asyncio.sleep(0.02)
            _mark(ctx, mark, "beat")
    finally:
        _mark(ctx, mark, "left")
    _mark(ctx, mark, "ended")
    return "It lasted. Nothing else."


@agent("writes", isolation="inline", timeout=60)
async def writes(ctx: Context, seconds: float = 50.0) -> str:
    """Reports a file and does not end."""
    path = ctx.scratch / "half.md"
    path.write_text("# half\n")
    ctx.artifact(path, "report", "Half of it.")
    ctx.emit({"pages": 1})
    await asyncio.sleep(seconds)
    return "Written."


@agent("talks", isolation="inline", timeout=60)
async def talks(ctx: Context, mark: str, chunks: int = 6, pause: float = 0.03) -> dict[str, Any]:
    """Emits chunks once there is a listener: it waits until the file of its mark exists."""
    ctx.progress("listening", 0.25)
    while not (folder(ctx.root) / mark).exists():  # noqa: ASYNC110 - another process may create the file
        await asyncio.sleep(0.01)
    for number in range(chunks):
        ctx.emit({"number": number, "words": f"größer {number} 𝄞"})
        await asyncio.sleep(pause)
    ctx.progress("said", 1.0)
    return {"chunks": chunks}


@agent("asks", isolation="inline", timeout=60)
async def asks(ctx: Context, inner: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    """Delegates to another agent and reports the outcome."""
    child = await ctx.delegate(inner, parameters=parameters or {})
    return {"child": child.session_id, "status": str(child.status), "codes": [error.code for error in child.errors]}


@agent("forbidden", isolation="inline")
async def forbidden(ctx: Context, mark: str) -> str:
    """Denied to all callers by the policy."""
    _mark(ctx, mark, "ran")
    return "Done all the same."


@agent("large", isolation="inline")
async def large(ctx: Context, rows: int) -> dict[str, Any]:
    """Returns many rows."""
    return {"rows": [{"number": number, "words": "wörter " * 12} for number in range(rows)]}


@agent("narrow", isolation="inline", timeout=60)
async def narrow(ctx: Context, mark: str, name: str) -> str:
    """Runs one at a time (`slots_per_agent`): records its run and continues when the mark file `NAME.go` exists."""
    _mark(ctx, mark, name)
    while not (folder(ctx.root) / f"{mark}.go").exists():  # noqa: ASYNC110 - the same
        await asyncio.sleep(0.01)
    return "Let go."


ROLES = (
    "researcher", "planner", "implementer", "task-executor", "reviewer", "error-diagnostics-agent", "lean-research-agent",
    "lean-implementation-agent", "web-research-specialist", "atomic-task-numberer", "meta-builder",
)  # fmt: skip
"""The built-in agents of the board."""
API_AGENTS = (echo, count, ends, breaks, hangs, writes, talks, asks, forbidden, large, narrow)
SETTINGS: dict[str, Any] = {"builtin_agents": ["compose"], "slots_per_agent": {"narrow": 1}}
