"""A project whose assistant is a scripted model. `assistant_project` is one in a process that can be killed."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from assistant_project import settings_for

from remit import Context, Remit, agent
from remit.testing import ScriptedModels
from remit.testing.models.turns import Script


@agent("echo")
async def echo(ctx: Context, text: str) -> str:
    return text


@asynccontextmanager
async def project(
    root: Path, script: Script, *, agents: Iterable[Any] = (), approver: Any = None, **settings: Any
) -> AsyncIterator[tuple[Remit, ScriptedModels]]:
    """A project with `echo` and these agents."""
    async with (
        ScriptedModels(script) as models,
        Remit.open(root, agents=[echo, *agents], settings={**settings_for(models.openai_url), **settings}, approver=approver) as remit,
    ):
        yield remit, models
