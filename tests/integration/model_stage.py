"""A project with a model agent `thinker`, whose model is a script; for the tests of model agents."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from remit import Remit, agent
from remit.flow.context import Context
from remit.testing.models import Script, ScriptedModels
from remit.testing.models.request import ModelRequest


@agent("count.up", description="The number after this one.")
async def count_up(number: int) -> int:
    return number + 1


@agent("count.forever")
async def count_forever(ctx: Context) -> str:
    await asyncio.sleep(60)
    return "never"


@agent("count.long")
async def count_long() -> str:
    return "".join(f"{number:06d}\n" for number in range(20_000))


@agent("note")
async def note(ctx: Context, text: str = "x") -> str:
    (ctx.workspace / "note.txt").write_text(text)
    ctx.artifact("note.txt")
    return "Wrote it."


AGENTS = (count_up, count_forever, count_long, note)
TOOLS = ("count", "note")


def settings_for(server: ScriptedModels, thinker: dict[str, Any], **more: Any) -> dict[str, Any]:
    address = {"kind": "openai", "url": server.openai_url, "model": "scripted", "key_variable": "SCRIPTED_KEY"}
    declared = {"kind": "model", "description": "Thinks.", "tools": list(TOOLS), "timeout": 20, **thinker}
    return {"model": "scripted", "models": {"scripted": address}, "agents": {"thinker": declared}, **more}


@asynccontextmanager
async def stage(
    root: Path, script: Script, *, agents: Iterable[Any] = AGENTS, settings: dict[str, Any] | None = None, **thinker: Any
) -> AsyncIterator[tuple[Remit, ScriptedModels]]:
    async with (
        ScriptedModels(script) as server,
        Remit.open(root, agents=agents, settings=settings_for(server, thinker, **(settings or {}))) as remit,
    ):
        yield remit, server


def shown(request: ModelRequest) -> list[str]:
    """What the model was shown of the calls of its last turn."""
    results: list[str] = []
    for message in reversed(request.messages):
        if message.role != "tool":
            break
        results.insert(0, message.text)
    return results
