"""The scripted model server.

`test_model_requests` and `test_model_failover` read its streams and failures with the client libraries of the providers.
"""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

from remit.testing import Call, Reply, Say, ScriptedModels
from remit.testing.models.request import Api

PATHS = {Api.ANTHROPIC: "/v1/messages", Api.CHAT: "/v1/chat/completions", Api.RESPONSES: "/v1/responses"}
APIS = list(PATHS)
SCHEMA = {"type": "object", "properties": {"task": {"type": "string"}}}


def body(api: Api, text: str, *, stream: bool = False, tools: bool = True) -> dict[str, Any]:
    conversation: dict[str, Any] = {"input": text} if api is Api.RESPONSES else {"messages": [{"role": "user", "content": text}]}
    offered: dict[Api, list[dict[str, Any]]] = {
        Api.ANTHROPIC: [{"name": "mcp__remit__delegate", "description": "", "input_schema": SCHEMA}],
        Api.CHAT: [{"type": "function", "function": {"name": "remit_delegate", "parameters": SCHEMA}}],
        Api.RESPONSES: [
            {"type": "namespace", "name": "mcp__remit", "tools": [{"type": "function", "name": "delegate", "parameters": SCHEMA}]}
        ],
    }
    more = {"max_tokens": 100} if api is Api.ANTHROPIC else {}
    return {"model": "some-model", "stream": stream, **conversation, **more, **({"tools": offered[api]} if tools else {})}


def post(url: str, document: Any, timeout: float = 10.0) -> tuple[int, dict[str, str], str]:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json", "x-api-key": "any"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


async def ask(models: ScriptedModels, api: Api, text: str = "Do it.", **asked: Any) -> tuple[int, dict[str, str], str]:
    return await asyncio.to_thread(post, models.base_url + PATHS[api], body(api, text, **asked))


async def test_tool_call_has_the_full_tool_name_in_each_api() -> None:
    """Clients of the providers read the streams in `test_model_requests`."""
    async with ScriptedModels([[Say("I hand it on."), Call("delegate", task="read")]]) as models:
        streams = {api: (await ask(models, api, f"Do it by {api}.", stream=True))[2] for api in APIS}
    assert '"type":"tool_use","id":"toolu_call_00001_0","name":"mcp__remit__delegate"' in streams[Api.ANTHROPIC]
    assert '"name":"remit_delegate"' in streams[Api.CHAT]
    item = json.loads(streams[Api.RESPONSES].strip().rpartition("data: ")[2])["response"]["output"][1]
    assert (item["namespace"], item["name"], json.loads(item["arguments"])) == ("mcp__remit", "delegate", {"task": "read"})


async def test_script_is_chosen_by_prompt_or_function() -> None:
    async with ScriptedModels({"apples": [Say("red")], "pears": [Reply(lambda request: Say(request.text.upper()))]}) as models:
        assert "red" in (await ask(models, Api.ANTHROPIC, "Look at the apples."))[2]
        assert "PEARS" in (await ask(models, Api.ANTHROPIC, "Look at the pears."))[2]
        status, _, text = await ask(models, Api.ANTHROPIC, "Look at the plums.")
    assert status == 400
    assert "No script is for this conversation" in text
    async with ScriptedModels(lambda request: Say(str(request.tool("delegate") is not None))) as models:
        assert "True" in (await ask(models, Api.RESPONSES))[2]
        assert "False" in (await ask(models, Api.RESPONSES, "Other.", tools=False))[2]


async def test_invalid_call_is_a_fault_of_the_script() -> None:
    async with ScriptedModels([Call("Bash", command="ls")]) as models:
        status, _, text = await ask(models, Api.RESPONSES)
    assert status == 400
    assert "Offered: mcp__remit__delegate" in text
    assert models.faults == ["The script calls the tool 'Bash', and no tool of that name is offered. Offered: mcp__remit__delegate."]
    async with ScriptedModels([Call("delegate", task="read")]) as models:
        assert [(await ask(models, Api.CHAT))[0] for _ in range(2)] == [200, 400]
    assert "ends with a call of a tool" in models.faults[0]
