"""The assistant (S5.8): a model whose only tool is `delegate`, against the scripted model server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remit import Remit, agent
from remit.assistant.asking import ask
from remit.assistant.conversations import Conversations
from remit.assistant.history import faults_of
from remit.core.result import Return, Status
from remit.flow.context import Context
from remit.models.messages import Reply, Result
from remit.models.question import RESTART
from remit.testing.models import Call, Drip, Fail, Say, ScriptedModels, Silence
from remit.testing.models import Reply as Decided

KEY = "SCRIPTED_KEY"


@agent("echo")
async def echo(ctx: Context, text: str) -> str:
    return text


@agent("long")
async def long(ctx: Context, characters: int = 50_000) -> str:
    return "".join(f"{number:09d} " for number in range(characters // 10))


@agent("slow", timeout=30)
async def slow(ctx: Context, seconds: float = 20.0) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@asynccontextmanager
async def project(root: Path, script: Any, **settings: Any) -> AsyncIterator[tuple[Remit, ScriptedModels]]:
    async with ScriptedModels(script) as models:
        given = {
            "model": "scripted",
            "models": {"scripted": {"kind": "openai", "url": models.openai_url, "model": "scripted"}},
            **settings,
        }
        async with Remit.open(root, agents=[echo, long, slow], settings=given) as remit:
            yield remit, models


def delegate(target: str, operation: str | None = None, timeout: int | None = None, **parameters: Any) -> Call:
    asked: dict[str, Any] = {"target": target, "parameters": parameters}
    return Call("delegate", **asked, **({"operation": operation} if operation else {}), **({"timeout": timeout} if timeout else {}))


async def test_a_message_is_delegated_and_then_answered(tmp_path: Path) -> None:
    """S5.8: the result goes back to the model, which then answers; the conversation is kept."""
    heard: list[str] = []
    async with project(tmp_path, [delegate("echo", text="ping"), Say("It says ping. All is well.")]) as (remit, models):
        returned = await ask(remit, "What does echo say?", hear=heard.append)
        assert returned.status is Status.COMPLETED, returned
        assert returned.data["text"] == "It says ping. All is well."
        assert "".join(heard) == "It says ping. All is well."
        [delegation] = returned.data["delegations"]
        child = await remit.describe(delegation["taskId"])
        assert (child.agent, child.depth, child.parent_id) == ("echo", 2, returned.session_id)
        assert [tool.name for tool in models.requests[0].tools] == ["delegate"]
        assert "ping" in models.requests[1].results[0]
        assert not returned.warnings
    kept = Conversations(tmp_path).open(returned.data["conversation"])
    assert [type(message).__name__ for message in kept.messages] == ["Said", "Reply", "Result", "Reply"]
    assert kept.title == "What does echo say?"
    assert [turn.session_id for turn in kept.turns] == [returned.session_id]
    assert [started.session_id for started in kept.started] == [delegation["taskId"]]
    assert faults_of(kept.messages) == []
