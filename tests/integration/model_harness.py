"""A project with a model agent `thinker`, whose model is scripted, and a budget for its calls."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from remit import Context, Limits, Remit, Return, agent
from remit.core.settings import ModelAddress, Price
from remit.models.client import Models
from remit.testing import Call, ModelRequest, Reply, Say, ScriptedModels, valid_return
from remit.testing.models.turns import Script

__all__ = [
    "AGENTS", "COUNT", "DONE", "TOOLS", "ModelAddress", "Models", "Price", "SpendRecorder", "ask_thinker",
    "model_project", "settings_for", "tool_results",
]  # fmt: skip

DONE = Reply(lambda request: Say(valid_return(request)))
COUNT = Call("delegate", target="count", operation="up", parameters={"number": 1})


class SpendRecorder:
    """The part of a `Context` that requests to models use: deadline, budget and progress."""

    def __init__(self, remaining: float = 60.0, budget: Limits | None = None) -> None:
        self._ends, self.budget = time.monotonic() + remaining, budget or Limits()
        self.tokens, self.cost, self.messages = 0, 0.0, list[str]()

    @property
    def remaining(self) -> float:
        return self._ends - time.monotonic()

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        self.tokens += tokens
        self.cost += cost

    def progress(self, message: str, fraction: float | None = None) -> None:
        self.messages.append(message)


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
    address = {"kind": "openai", "url": server.openai_url, "model": "scripted"}
    declared = {"kind": "model", "description": "Thinks.", "tools": list(TOOLS), "timeout": 20, **thinker}
    return {"model": "scripted", "models": {"scripted": address}, "agents": {"thinker": declared}, **more}


@asynccontextmanager
async def model_project(
    root: Path, script: Script, *, agents: Iterable[Any] = AGENTS, settings: dict[str, Any] | None = None, **thinker: Any
) -> AsyncIterator[tuple[Remit, ScriptedModels]]:
    async with (
        ScriptedModels(script) as server,
        Remit.open(root, agents=agents, settings=settings_for(server, thinker, **(settings or {}))) as remit,
    ):
        yield remit, server


async def ask_thinker(remit: Remit, task: str = "Think about it.", **more: Any) -> Return:
    return await remit.delegate("thinker", parameters={"task": task}, **more)


def tool_results(request: ModelRequest) -> list[str]:
    """The tool results sent to the model in its last turn."""
    results: list[str] = []
    for message in reversed(request.messages):
        if message.role != "tool":
            break
        results.insert(0, message.text)
    return results
