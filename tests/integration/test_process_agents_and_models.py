"""What an agent in a process of its own may ask of the models of the Remit process."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from remit import Remit, agent
from remit.agents.process.service import LONGEST_QUESTION, MOST_QUESTIONS, QUESTIONS_AT_ONCE, Service
from remit.core.errors import Misused, RemitError
from remit.flow.context import Context
from remit.models.messages import Asked, Purse, Reply
from remit.testing.models import Say, ScriptedModels


@agent("prying.ask", isolation="process")
async def pry(ctx: Context) -> str:
    """An agent of a user that puts a question to the model by the way the built-in ones have."""
    try:
        return str(await ctx._desk._channel.ask("write", prompt="Spend money."))  # type: ignore[attr-defined]
    except RemitError as error:
        return error.code


async def test_an_agent_that_does_not_come_with_remit_reaches_no_model_it_was_not_given(tmp_path: Path) -> None:
    async with ScriptedModels(lambda request: Say("No.")) as server:
        known = {"scripted": {"kind": "openai", "url": server.openai_url, "model": "scripted"}}
        async with Remit.open(tmp_path, agents=[pry], settings={"model": "scripted", "models": known}) as remit:
            done = await remit.delegate("prying.ask")
        assert (done.data, server.requests) == ("TOOL_UNAVAILABLE", [])


class Counting:
    """A model that counts how many ask at once."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0

    def is_configured(self) -> bool:
        return True

    async def write(self, purse: Purse, prompt: str, *, instructions: str = "", schema: Mapping[str, Any] | None = None) -> Asked:
        self.now, self.all = self.now + 1, self.all + 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return Asked(reply=Reply(text=prompt, model="counting"))


class Nobody:
    """A context of which only what can be told is looked at."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


async def test_a_worker_asks_few_questions_at_once_few_in_all_and_none_that_is_huge() -> None:
    models = Counting()
    service = Service(cast("Context", Nobody()), models)
    for huge in ({"prompt": "x" * (LONGEST_QUESTION + 1)}, {"prompt": "x", "schema": {"x": "x" * LONGEST_QUESTION}}):
        with pytest.raises(Misused):
            await service.call("write", huge)
    asked = [service.call("write", {"prompt": str(number)}) for number in range(MOST_QUESTIONS + 20)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(one, Misused) for one in answers) == 20
    assert (models.all, models.most) == (MOST_QUESTIONS, QUESTIONS_AT_ONCE)
