"""`Toolbox`: the delegate tool with the client of a provider, against the scripted model server, on other loops, and for large results."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Misused, Remit, Toolbox, agent
from remit.testing import Call, Say, ScriptedModels

CALL = {"target": "echo", "parameters": {"text": "hi"}}


@agent("echo")
async def echo(text: str) -> str:
    return f"echo {text}"


@pytest.fixture
async def toolbox(tmp_path: Path) -> AsyncIterator[Toolbox]:
    async with Remit.open(tmp_path, agents=[echo]) as remit:
        yield Toolbox(remit)


@pytest.fixture
async def models() -> AsyncIterator[ScriptedModels]:
    async with ScriptedModels([Call("delegate", **CALL), Say("Done.")]) as scripted:
        yield scripted
    assert scripted.faults == []
    assert "echo hi" in scripted.requests[1].results[0]


# ---- clients


async def test_openai_chat_completions_client(toolbox: Toolbox, models: ScriptedModels) -> None:
    from openai import AsyncOpenAI

    messages: list[Any] = [{"role": "user", "content": "Go."}]
    async with AsyncOpenAI(base_url=models.openai_url, api_key="none") as client:
        offer = toolbox.definition()
        function = {"name": offer["name"], "description": offer["description"], "parameters": offer["inputSchema"]}
        tools: Any = [{"type": "function", "function": function}]
        reply = (await client.chat.completions.create(model="scripted", messages=messages, tools=tools)).choices[0].message
        messages.append(reply)
        for call in reply.tool_calls or ():
            assert call.type == "function"
            text = await toolbox.call(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        last = await client.chat.completions.create(model="scripted", messages=messages, tools=tools)
    assert last.choices[0].message.content == "Done."


# ---- model input


async def test_unknown_tool_is_named_in_the_error(tmp_path: Path) -> None:
    async with Remit.open(tmp_path) as remit:
        toolbox = Toolbox(remit, characters=1000)
        for name in ["bash", "Delegate", "", "functions.delegate", "\ud800", "\ud800" * 80]:
            text = await toolbox.call(name, CALL)
            assert json.loads(text)["success"] is False
            assert "There is no tool" in text
            assert len(text) <= 1000


async def test_call_on_another_loop_of_an_agent_makes_a_child(tmp_path: Path) -> None:
    """The context is carried across the thread and its event loop."""

    @agent("outer")
    async def outer(ctx: Context) -> str:
        return await asyncio.to_thread(lambda: asyncio.run(Toolbox(remit).call("delegate", CALL)))

    async with Remit.open(tmp_path, agents=[echo, outer]) as remit:
        done = await remit.delegate("outer")
        tree = await remit.tree(done.session_id)
        assert [(record.agent, record.depth) for record in tree] == [("outer", 1), ("echo", 2)]
    with pytest.raises(Misused):
        await Toolbox(remit).call("delegate", CALL)


# ---- shortening


async def test_shortened_result_can_be_read_in_ranges_by_its_caller_only(tmp_path: Path) -> None:
    """Outside an agent each call is a tree of its own, and the tool that made the calls may read their results."""
    words = "".join(f"{number} \x01 “{number}” " for number in range(2_000))
    async with Remit.open(tmp_path, agents=[echo]) as remit:
        toolbox = Toolbox(remit, characters=3_000)
        first = json.loads(await toolbox.call("delegate", {"target": "echo", "parameters": {"text": words}}))
        request = first["readOn"]
        read = first["data"][: request["parameters"]["offset"]]
        while request["parameters"]["offset"] is not None:
            text = await toolbox.call("delegate", request)
            assert len(text) <= 3_000
            data = json.loads(text)["data"]
            read += data["text"]
            request["parameters"]["offset"] = data["next"]
        assert read == f"echo {words}"
        request["parameters"]["offset"] = 0
        assert json.loads(await Toolbox(remit).call("delegate", request))["error"]["cause"] == "POLICY_DENIED"
