"""Failover between models: retries, timeouts, and hostile model servers."""

import asyncio
import json
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from model_harness import ModelAddress, Models, SpendRecorder

from remit import Misused, Settings, Unavailable, load_settings
from remit.system import http
from remit.testing import Cut, Drip, Fail, Say, ScriptedModels, Silence
from support.histories import RESTART, Answer, Question, UserMessage
from support.pace import allowed

KEY = "sk-scripted-0011223344556677"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
Play = Callable[[asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_KEY", KEY)


@asynccontextmanager
async def chain(*servers: ScriptedModels | str, idle: float = 10.0) -> AsyncIterator[Models]:
    """Models `m1`, `m2`, … at these servers, in this order."""
    tables = {}
    for number, server in enumerate(servers, 1):
        url = server if isinstance(server, str) else server.openai_url
        tables[f"m{number}"] = ModelAddress(kind="openai", url=url, model="scripted", key_variable="SCRIPTED_KEY")
    models = Models(Settings(model=tuple(tables), models=tables, model_idle_seconds=idle))
    try:
        yield models
    finally:
        await models.close()


async def ask(models: Models, spending: SpendRecorder | None = None, **more: Any) -> Answer:
    return await models.ask(
        spending or SpendRecorder(), Question(choice=models.choice(), messages=[UserMessage(text="Say something.")], **more)
    )


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (Fail(401, "invalid x-api-key"), "SCRIPTED_KEY"),
        (Fail(404, "no such model"), "no such model"),
        (Fail(500, "boom"), "it failed (500). It says: boom"),
        (Fail(400, "bad request"), "refused the request"),
        (Fail(307, headers={"location": "http://127.0.0.1:1/"}), "leads elsewhere"),
        (Cut(), "broke off"),
        (Cut("Half a sentence, no more of it"), "broke off"),
        (Silence(), "said nothing for 0.3 s"),
        (Fail(429, "slow down", retry_after=600), "no more requests"),
    ],
)
async def test_failover_asks_the_next_model_and_names_the_fault(turn: Any, words: str) -> None:
    chunks: list[str] = []
    async with ScriptedModels([turn]) as bad, ScriptedModels([Say("Here I am.")]) as good, chain(bad, good, idle=0.3) as models:
        asked = await ask(models, hear=chunks.append)
    assert asked.reply.text == "Here I am."
    assert asked.reply.model == "m2"
    (tried,) = asked.tried
    assert tried.model == "m1"
    assert words in tried.fault
    assert len(bad.requests) == 1, "retries of the client libraries are off"
    last = "".join(chunks).rpartition(RESTART)[2]
    assert last == "Here I am."
    assert (RESTART in chunks) == (isinstance(turn, Cut) and bool(turn.text))


async def test_error_names_every_model_that_failed() -> None:
    async with (
        ScriptedModels([Fail(500, "first")]) as one,
        ScriptedModels([Fail(401, "second")]) as two,
        chain(one, "http://127.0.0.1:9/v1", two) as models,
    ):
        with pytest.raises(Unavailable) as failed:
            await ask(models)
    error = failed.value
    assert error.code == "AGENT_UNAVAILABLE"
    assert "m1: it failed (500)" in str(error)
    assert "m2: the connection to http://127.0.0.1:9/v1" in str(error)
    assert "m3: its key was refused" in str(error)
    assert "remit doctor" in error.advice


@pytest.mark.parametrize(
    ("kind", "status"),
    [("anthropic", 429), ("openai", 429), ("openai-responses", 429), ("google", 429), ("anthropic", 529), ("google", 503)],
)
async def test_busy_model_is_asked_again(kind: Any, status: int) -> None:
    spending = SpendRecorder()
    async with ScriptedModels([Fail(status, "busy", retry_after=0.05), Say("Now.")]) as server:
        url = server.openai_url if kind.startswith("openai") else server.base_url
        table = ModelAddress(kind=kind, url=url, model="scripted", key_variable="SCRIPTED_KEY")
        models = Models(Settings(model=("m",), models={"m": table}))
        began = time.monotonic()
        asked = await ask(models, spending)
    assert asked.reply.text == "Now."
    assert len(server.requests) == 2
    assert time.monotonic() - began < allowed(8)
    assert "Asked again" in spending.messages[0]


async def test_slow_stream_is_accepted_and_a_silent_one_times_out() -> None:
    """Any byte resets the idle timeout."""
    async with ScriptedModels([Drip("One word after the other, slowly. " * 3, seconds=0.9)]) as server, chain(server, idle=0.5) as models:
        asked = await ask(models)
    assert asked.reply.text.startswith("One word")
    async with ScriptedModels([Drip("One word after the other, slowly. " * 3, seconds=60)]) as server, chain(server, idle=0.2) as models:
        with pytest.raises(Unavailable, match="said nothing"):
            await ask(models)


# ---- hostile or broken servers, as raw sockets


@asynccontextmanager
async def server(play: Play) -> AsyncIterator[str]:
    """The URL of a server that reads a request and then runs `play`."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            await reader.readexactly(length)
            await play(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"


async def fault(play: Play, **more: Any) -> str:
    async with server(play) as url, chain(url, **more) as models:
        with pytest.raises(Unavailable) as failed:
            await ask(models)
    assert failed.value.code == "AGENT_UNAVAILABLE"
    return failed.value.message


async def answer_to(*events: bytes, spending: SpendRecorder | None = None) -> Answer:
    """The answer that is parsed from these events."""
    async with server(sending(*events)) as url, chain(url) as models:
        return await ask(models, spending)


def event(text: str | None = None, *, ended: str | None = None, usage: str = "null", **delta: Any) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text, **delta}, "finish_reason": ended}
    whole = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [choice], "usage": "@"}
    return b"data: " + json.dumps(whole).replace('"@"', usage).encode() + b"\n\n"


def sending(*events: bytes) -> Play:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + b"".join(events) + b"data: [DONE]\n\n")
        await writer.drain()

    return play


def flood(head: bytes, piece: bytes, times: int) -> Play:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for _ in range(times):
            writer.write(piece)
            await writer.drain()

    return play


def gzip_of(megabytes: int) -> bytes:
    packing = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packing.compress(b"x" * 1_000_000) for _ in range(megabytes)), packing.flush()])


@pytest.mark.parametrize(
    ("play", "words"),
    [
        (flood(b"HTTP/1.1 500 X\r\nContent-Type: text/html\r\n\r\n", b"<p>oh\n" * 20_000, 200), "it failed (500). It says: <p>oh"),
        (flood(STREAM, b"data: " + b"x" * 100_000, 400), "without coming to an end"),
        (flood(STREAM, b"data: x\n" * 1000, 400), "without coming to an end"),
        (flood(STREAM.replace(b"Type", b"Encoding: gzip\r\nContent-Type"), gzip_of(60), 1), "without coming to an end"),
        (flood(b"HTTP/1.1 502 X\r\nContent-Encoding: gzip\r\n\r\n", gzip_of(60), 1), "it failed (502)"),
        (flood(STREAM.replace(b"Type", b"Encoding: br\r\nContent-Type"), b"x", 1), "not asked for (br)"),
        (flood(STREAM.replace(b"Type", b"Encoding: gzip\r\nContent-Type"), b"no gzip", 1), "could not be read"),
    ],
    ids=["endless error page", "endless line", "endless event", "gzip bomb", "gzip bomb as error", "br", "invalid gzip"],
)
async def test_hostile_response_uses_bounded_memory(play: Play, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "EVENT_BYTES", 2 << 20)
    await fault(sending())  # imports do not count
    tracemalloc.start()
    try:
        assert words in await fault(play)
        assert tracemalloc.get_traced_memory()[1] < 25 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("at", [250, 275, 290])
async def test_truncated_error_shows_no_part_of_a_key(at: int) -> None:
    body = json.dumps({"error": {"message": "x" * at + KEY}}).encode()
    message = await fault(flood(b"HTTP/1.1 401 X\r\nContent-Type: application/json\r\n\r\n", body, 1))
    assert "SCRIPTED_KEY" in message
    assert not any(KEY[:length] in message for length in range(4, len(KEY)))


async def test_echoed_key_is_redacted_in_stream_and_reply() -> None:
    chunks: list[str] = []
    async with (
        server(sending(event(f"It is {KEY[:9]}"), event(f"{KEY[9:]}, sk-"), event(ended="stop"))) as url,
        chain(url) as models,
    ):
        asked = await models.ask(SpendRecorder(), Question(choice=models.choice(), messages=[UserMessage(text="x")], hear=chunks.append))
    assert asked.reply.text == "".join(chunks) == "It is [redacted], sk-"


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>hello</html>",
        STREAM + b"data: {no json\n\n",
        STREAM + b'data: {"choices": 5}\n\n',
        STREAM + event("hal"),
    ],
)
async def test_malformed_response_is_an_error_with_the_url(answer: bytes) -> None:
    message = await fault(flood(answer, b"", 1))
    assert "http://127.0.0.1:" in message or "broke off" in message


def test_key_in_the_settings_is_refused_and_not_shown() -> None:
    for line in ({"key_variable": KEY}, {"key": KEY}, {"api_key": KEY}, {"url": f"http://me:{KEY}@127.0.0.1/v1"}):
        with pytest.raises(Misused, match=r"key_variable|address") as refused:
            load_settings(Path("/"), {"models": {"m": line}})
        assert KEY not in str(refused.value)
    key = f"sk-ant-api03-{'Ab1' * 20}"
    with pytest.raises(Unavailable) as unavailable:
        Models(Settings(model=(key,))).choice()
    assert key not in f"{unavailable.value} {unavailable.value.advice}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", ["-1000000", "1e400", "NaN", "1" + "0" * 30, "1.5"])
async def test_impossible_token_counts_are_estimated(count: str) -> None:
    """A negative count would refill the budget; an infinite one would end the tree."""
    spending = SpendRecorder()
    usage = f'{{"prompt_tokens": {count}, "completion_tokens": {count}, "total_tokens": {count}}}'
    asked = await answer_to(event("Hello.", ended="stop", usage=usage), spending=spending)
    assert 0 < spending.tokens < 100
    assert asked.details == {"tokens": "estimated"}
