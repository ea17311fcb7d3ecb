"""Requests to models over every provider API: text, calls, signed thoughts, schemas, limits and cost."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from model_harness import ModelAddress, Models, Price, SpendRecorder

from remit import Limits, Settings, Stopped, Unavailable
from remit.testing import Call, Cut, Drip, Fail, Garbled, Say, ScriptedModels, Stray, Think
from remit.testing.models.turns import Script
from support.histories import Answer, EndReason, Message, Question, ToolOffer, ToolResult, UserMessage

KEY = "sk-scripted-4f1d2c7b9e"
KINDS = ("anthropic", "openai", "openai-responses", "google", "ollama")
TOOL = ToolOffer(name="delegate", description="Hand work on.", schema={"type": "object", "properties": {"task": {"type": "string"}}})


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_KEY", KEY)


def address(server: ScriptedModels, kind: str, **more: Any) -> ModelAddress:
    url = server.openai_url if kind.startswith("openai") else server.base_url
    return ModelAddress(**{"kind": kind, "url": url, "model": "scripted", "key_variable": "SCRIPTED_KEY", **more})


def models(server: ScriptedModels, kind: str, **more: Any) -> Models:
    idle = more.pop("idle", 10.0)
    prices = more.pop("prices", {})
    return Models(Settings(model=("m",), models={"m": address(server, kind, **more)}, model_idle_seconds=idle, prices=prices))


async def ask(
    asked: Models, messages: Sequence[Message] = (UserMessage(text="Say something."),), spending: SpendRecorder | None = None, **more: Any
) -> Answer:
    try:
        return await asked.ask(spending or SpendRecorder(), Question(choice=asked.choice(), messages=messages, **more))
    finally:
        await asked.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_text_is_streamed_and_its_cost_is_charged(kind: str) -> None:
    chunks: list[str] = []
    spending = SpendRecorder()
    async with ScriptedModels([Say("A first word, and a second one.").using(1000, 200)]) as server:
        prices = {"m": Price(input=2.0, output=10.0)}
        asked = await ask(models(server, kind, prices=prices), spending=spending, instructions="Be short.", hear=chunks.append)
    assert "".join(chunks) == asked.reply.text == "A first word, and a second one."
    assert len(chunks) > 1
    assert (asked.input_tokens, asked.output_tokens, asked.ended, asked.tried) == (1000, 200, EndReason.FINISHED, ())
    assert asked.cost == pytest.approx(0.004)
    assert (spending.tokens, spending.cost) == (1200, pytest.approx(0.004))
    (request,) = server.requests
    assert (request.model, request.stream, request.system, request.asked) == ("scripted", True, "Be short.", "Say something.")


@pytest.mark.parametrize("kind", KINDS)
async def test_invalid_calls_are_preserved_in_the_conversation(kind: str) -> None:
    """Names that were not offered, missing or repeated ids, arguments that are not JSON."""
    script: Script = [
        [Say("Hm."), Stray("rm -rf /", force=True).with_id(""), Stray("a", x=1).with_id("same"), Stray("b", x=2).with_id("same")],
        Garbled("delegate", '{"task": "half') if kind != "google" else Stray("delegate", task="half"),
        Say("Done."),
    ]
    async with ScriptedModels(script) as server:
        prompt = UserMessage(text="Say something.")
        first = await ask(models(server, kind), [prompt], tools=[TOOL])
        assert [call.name for call in first.reply.calls] == ["rm -rf /", "a", "b"]
        ids = {call.call_id for call in first.reply.calls}
        assert len(ids) == 3
        assert all(ids)
        second = await ask(models(server, kind), [prompt, first.reply], tools=[TOOL])
        if kind != "google":
            assert second.reply.calls[0].arguments == '{"task": "half'
        third = await ask(models(server, kind), [prompt, first.reply, second.reply, UserMessage(text="And now?")], tools=[TOOL])
    assert third.reply.text == "Done."
    shown = json.dumps(server.requests[2].body)
    assert "rm -rf /" not in shown
    assert "rm_-rf_" in shown
    assert len(server.requests[2].results) == 4


@pytest.mark.parametrize("kind", ["anthropic", "google"])
async def test_signed_thoughts_are_sent_only_to_their_own_model(kind: str) -> None:
    signature = "c2lnbmVkLWJ5LXRoZS1zY3JpcHQ="
    async with ScriptedModels([[Think("Deep.", signature=signature), Call("delegate", task="x")], Say("Done.")]) as server:
        prompt = UserMessage(text="Say something.")
        first = await ask(models(server, kind), [prompt], tools=[TOOL])
        assert first.reply.raw is not None
        stored = replace(first.reply, raw=json.loads(json.dumps(first.reply.raw)))
        result = ToolResult(call_id=first.reply.calls[0].call_id, name="delegate", text="r")
        await ask(models(server, kind), [prompt, stored, result], tools=[TOOL])
        assert signature in json.dumps(server.requests[1].body)
        other = Models(Settings(model=("other",), models={"other": address(server, kind)}))
        await ask(other, [prompt, stored, result], tools=[TOOL])
    assert signature not in json.dumps(server.requests[2].body)
    assert server.requests[2].results == ("r",)


@pytest.mark.parametrize("kind", KINDS)
async def test_schema_is_sent_to_the_provider(kind: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    async with ScriptedModels([Say('{"n": 1}')]) as server:
        name = {"anthropic": "claude-sonnet-5", "google": "gemini-2.5-flash"}.get(kind, "gpt-4o")
        asked = await ask(models(server, kind, model=name), output_schema=schema)
    assert json.loads(asked.reply.text) == {"n": 1}
    body = server.requests[0].body
    fields = {"openai-responses": "text", "anthropic": "output_config", "google": "generationConfig"}
    assert '"n"' in json.dumps(body.get(fields.get(kind, "response_format"), body.get("output_format")))


async def test_request_is_repeated_without_a_refused_schema() -> None:
    def script(request: Any) -> Any:
        return Fail(400, "Invalid schema") if "response_format" in request.body else Say('{"n": 1}')

    async with ScriptedModels(script) as server:
        asked = await ask(models(server, "openai", model="gpt-4o"), output_schema={"type": "object", "properties": {"n": {}}})
    assert asked.reply.text == '{"n": 1}'
    assert len(server.requests) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_reply_is_cut_at_the_maximum_length(kind: str) -> None:
    """200,000 tokens: not kept in memory, charged to the budget, marked as an estimate."""
    spending, chunks = SpendRecorder(), list[str]()
    async with ScriptedModels([Say("word " * 200_000)]) as server:
        asked = await ask(models(server, kind), spending=spending, max_characters=10_000, hear=chunks.append)
    assert asked.ended is EndReason.LENGTH
    assert len(asked.reply.text) <= 10_000
    assert len("".join(chunks)) <= 10_000
    assert spending.tokens >= 10_000 / 4
    assert asked.details == {"tokens": "estimated"}


async def test_budget_limits_the_length_of_a_reply() -> None:
    async with ScriptedModels([Say("Fine.")]) as server:
        await ask(models(server, "openai"), spending=SpendRecorder(budget=Limits(tokens=5000)))
        await ask(models(server, "openai", prices={"m": Price(input=0, output=10)}), spending=SpendRecorder(budget=Limits(cost=0.01)))
        await ask(models(server, "openai", max_tokens=77), spending=SpendRecorder(budget=Limits(tokens=5000)))
        allowed = [request.body.get("max_completion_tokens", request.body.get("max_tokens")) for request in server.requests]
        with pytest.raises(Stopped) as refused:
            await ask(models(server, "openai"), [UserMessage(text="x" * 40_000)], spending=SpendRecorder(budget=Limits(tokens=100)))
    assert 4900 < allowed[0] < 5000
    assert allowed[1] == 1000
    assert allowed[2] == 77
    assert refused.value.code == "BUDGET_EXCEEDED"
    assert len(server.requests) == 3


@pytest.mark.parametrize("kind", ["anthropic", "google"])
async def test_cancelling_closes_the_connection(kind: str) -> None:
    async with ScriptedModels([Drip("Slowly, one word after the other.", seconds=60)]) as server:
        asked = models(server, kind)
        task = asyncio.create_task(asked.ask(SpendRecorder(), Question(choice=asked.choice(), messages=[UserMessage(text="x")])))
        await server.wait_asked()
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            while server._clients:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await asked.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_and_logs_never_contain_the_key(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with ScriptedModels([Fail(401, f"the key {KEY} is wrong")]) as server:
        asked = models(server, kind)
        with pytest.raises(Unavailable) as failed:
            await ask(asked)
        assert KEY in json.dumps(dict(server.requests[0].headers))
    error = failed.value
    assert KEY not in f"{error} {error!r} {error.__cause__!r} {error.__context__!r} {asked!r} {vars(asked)!r}"
    assert "SCRIPTED_KEY" in str(error)
    assert error.code == "AGENT_UNAVAILABLE"
    assert not [record for record in caplog.records if record.name.startswith("remit") and KEY in record.getMessage()]


async def test_interrupted_stream_is_charged() -> None:
    spending = SpendRecorder()
    async with ScriptedModels([Cut("Half a sentence that was paid for all the same")]) as server:
        with pytest.raises(Unavailable, match="broke off"):
            await ask(models(server, "anthropic"), spending=spending)
    assert spending.tokens > 0
