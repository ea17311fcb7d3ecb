"""A provider's server that means harm, or is only broken: raw sockets that say what no good one would (item 1, item 7)."""

import asyncio
import gc
import json
import os
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_stage import Purse

from remit.core.budget import Limits
from remit.core.errors import Misused, RemitError, Unavailable
from remit.models import stream
from remit.models.client import BREAKERS, Models
from remit.models.messages import Asked, Question, Said
from remit.models.pricing import UNPRICED
from remit.models.stream import KeyStruck
from remit.settings import load_settings
from remit.settings.values import ModelAddress, Settings

KEY = "sk-hostile-0011223344556677"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
Play = Callable[[asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def setting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HOSTILE_KEY", KEY)
    BREAKERS._states.clear()
    yield
    BREAKERS._states.clear()


@asynccontextmanager
async def server(play: Play, *, stays: bool = False) -> AsyncIterator[str]:
    """Reads a request, then does what it likes; gives its address. `stays`: and the next one on the same connection, until it is left."""

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            is_first = True
            while is_first or stays:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
                await reader.readexactly(length)
                await play(writer)
                is_first = False
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(met, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def models_at(*urls: str, idle: float = 5.0, kind: Any = "openai") -> Models:
    tables = {
        f"m{number}": ModelAddress(kind=kind, url=f"{url}/v1", model="x", key_variable="HOSTILE_KEY") for number, url in enumerate(urls, 1)
    }
    return Models(Settings(model=tuple(tables), models=tables, model_idle_seconds=idle))


async def ask(models: Models, purse: Purse | None = None) -> Asked:
    return await models.ask(purse or Purse(), Question(choice=models.choice(), messages=[Said(text="Say something.")]))


async def fault(play: Play, **more: Any) -> str:
    async with server(play) as url:
        models = models_at(url, **more)
        with pytest.raises(Unavailable) as failed:
            await ask(models)
        await models.close()
    assert failed.value.code == "AGENT_UNAVAILABLE"
    return failed.value.message


async def answered(*events: bytes, purse: Purse | None = None) -> Asked:
    """What was made of a reply of these events."""
    async with server(saying(*events)) as url:
        models = models_at(url)
        try:
            return await ask(models, purse)
        finally:
            await models.close()


def event(text: str | None = None, *, ended: str | None = None, usage: str = "null", **delta: Any) -> bytes:
    said = {"index": 0, "delta": {"role": "assistant", "content": text, **delta}, "finish_reason": ended}
    whole = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [said], "usage": "@"}
    return b"data: " + json.dumps(whole).replace('"@"', usage).encode() + b"\n\n"


def saying(*events: bytes) -> Play:
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


def packed(megabytes: int) -> bytes:
    packing = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packing.compress(b"x" * 1_000_000) for _ in range(megabytes)), packing.flush()])


@pytest.mark.parametrize(
    ("play", "words"),
    [
        (flood(b"HTTP/1.1 500 X\r\nContent-Type: text/html\r\n\r\n", b"<p>oh\n" * 20_000, 200), "it failed (500). It says: <p>oh"),
        (flood(STREAM, b"data: " + b"x" * 100_000, 400), "without coming to an end"),
        (flood(STREAM, b"data: x\n" * 1000, 400), "without coming to an end"),
        (flood(STREAM.replace(b"Type", b"Encoding: gzip\r\nContent-Type"), packed(60), 1), "without coming to an end"),
        (flood(b"HTTP/1.1 502 X\r\nContent-Encoding: gzip\r\n\r\n", packed(60), 1), "it failed (502)"),
        (flood(STREAM.replace(b"Type", b"Encoding: br\r\nContent-Type"), b"x", 1), "not asked for (br)"),
        (flood(STREAM.replace(b"Type", b"Encoding: gzip\r\nContent-Type"), b"no gzip", 1), "could not be read"),
    ],
    ids=["an endless error page", "an endless line", "an endless event", "a bomb", "an error that is a bomb", "br", "no gzip"],
)
async def test_no_server_fills_the_memory(play: Play, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "EVENT_BYTES", 2 << 20)
    await fault(saying())  # what is loaded once does not count
    tracemalloc.start()
    try:
        assert words in await fault(play)
        assert tracemalloc.get_traced_memory()[1] < 25 << 20
    finally:
        tracemalloc.stop()


async def test_a_packed_answer_is_unpacked() -> None:
    body = zlib.compress(event("Hello.", ended="stop") + b"data: [DONE]\n\n")
    async with server(flood(STREAM.replace(b"Type", b"Encoding: deflate\r\nContent-Type"), body, 1)) as url:
        models = models_at(url)
        assert (await ask(models)).reply.text == "Hello."
        await models.close()


@pytest.mark.parametrize(
    "nothing",
    [b": ping\n\n", event(""), event(None, tool_calls=[{"index": 0, "id": "", "function": {"name": "", "arguments": ""}}])],
    ids=["comments", "empty words", "empty calls"],
)
async def test_events_that_say_nothing_are_silence_however_many(nothing: bytes) -> None:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        while True:
            writer.write(nothing)
            await writer.drain()
            await asyncio.sleep(0.02)

    assert "it said nothing for 0.5 s" in await fault(play, idle=0.1), "five times the patience with one that is silent"


@pytest.mark.parametrize("at", [250, 275, 290])
async def test_no_part_of_a_key_is_shown_wherever_an_error_is_cut(at: int) -> None:
    body = json.dumps({"error": {"message": "x" * at + KEY}}).encode()
    said = await fault(flood(b"HTTP/1.1 401 X\r\nContent-Type: application/json\r\n\r\n", body, 1))
    assert "HOSTILE_KEY" in said
    assert not any(KEY[:length] in said for length in range(4, len(KEY)))


@given(before=st.text("sk-host x", max_size=20), after=st.text("sk-host x", max_size=20), cuts=st.lists(st.integers(0, 70), max_size=8))
def test_a_key_that_is_said_back_is_struck_out_however_it_is_cut(before: str, after: str, cuts: list[int]) -> None:
    text = before + KEY + after
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    struck = KeyStruck(KEY)
    heard = "".join(struck(text[start:end]) for start, end in pairwise(places)) + struck.rest()
    assert heard == text.replace(KEY, "[redacted]")


async def test_a_key_that_is_said_back_is_neither_heard_nor_in_the_reply() -> None:
    heard: list[str] = []
    async with server(saying(event(f"It is {KEY[:9]}"), event(f"{KEY[9:]}, sk-"), event(ended="stop"))) as url:
        models = models_at(url)
        asked = await models.ask(Purse(), Question(choice=models.choice(), messages=[Said(text="x")], hear=heard.append))
        await models.close()
    assert asked.reply.text == "".join(heard) == "It is [redacted], sk-"


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
async def test_what_is_no_answer_is_never_a_stack_trace(answer: bytes) -> None:
    said = await fault(flood(answer, b"", 1))
    assert "http://127.0.0.1:" in said or "broke off" in said


def test_no_key_is_shown_that_was_put_into_the_settings() -> None:
    for line in ({"key_variable": KEY}, {"key": KEY}, {"api_key": KEY}, {"url": f"http://me:{KEY}@127.0.0.1/v1"}):
        with pytest.raises(Misused, match=r"key_variable|address") as refused:
            load_settings(Path("/"), {"models": {"m": line}})
        assert KEY not in str(refused.value)
    key = f"sk-ant-api03-{'Ab1' * 20}"
    with pytest.raises(Unavailable) as unavailable:
        Models(Settings(model=(key,))).choice()
    assert key not in f"{unavailable.value} {unavailable.value.advice}"


@pytest.mark.parametrize("reason", ["eos", "", "banana"])
async def test_a_reason_to_end_that_nobody_knows_is_a_reason(reason: str) -> None:
    assert (await answered(event("Hello."), event(ended=reason or "stop"))).reply.text == "Hello."


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", ["-1000000", "1e400", "NaN", "1" + "0" * 30, "1.5"])
async def test_numbers_that_cannot_be_are_not_counted(count: str) -> None:
    """Less than nothing would fill the budget up again, and more than everything would end the tree."""
    purse = Purse()
    usage = f'{{"prompt_tokens": {count}, "completion_tokens": {count}, "total_tokens": {count}}}'
    asked = await answered(event("Hello.", ended="stop", usage=usage), purse=purse)
    assert 0 < purse.tokens < 100
    assert asked.details == {"tokens": "estimated"}


async def test_a_key_goes_to_no_other_host() -> None:
    async def elsewhere(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")

    assert "leads elsewhere (307)" in await fault(elsewhere, kind="google")


async def test_a_server_that_speaks_no_tls_is_told_from_one_that_is_not_there() -> None:
    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(met, "127.0.0.1", 0)
    async with listening:
        models = models_at(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        with pytest.raises(Unavailable, match="is it https that is spoken there"):
            await ask(models)
        await models.close()


async def test_a_budget_of_money_that_cannot_hold_is_told() -> None:
    purse = Purse(budget=Limits(cost=0.5))
    assert (await answered(event("Hello.", ended="stop"), purse=purse)).cost is None
    assert purse.said == [UNPRICED]


def test_loops_that_end_leave_no_socket_and_a_closed_one_asks_nobody() -> None:
    async def twice(models: Models) -> list[Asked]:
        return await asyncio.gather(ask(models), ask(models))

    async def beside() -> None:
        async def play(writer: asyncio.StreamWriter) -> None:  # says that it stays open
            body = event("Here.", ended="stop") + b"data: [DONE]\n\n"
            writer.write(STREAM.replace(b"Connection: close", b"Content-Length: %d" % len(body)) + body)
            await writer.drain()

        async with server(play, stays=True) as url:
            models = models_at(url)
            await asyncio.to_thread(asyncio.run, twice(models))
            gc.collect()
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(3):
                await asyncio.to_thread(asyncio.run, twice(models))
            for _ in range(100):  # the server's ends are in this process too, and are closed a moment after the client's
                gc.collect()
                if len(os.listdir("/proc/self/fd")) <= before + 2:
                    break
                await asyncio.sleep(0.02)
            assert len(os.listdir("/proc/self/fd")) <= before + 2
            await models.close()
            with pytest.raises(RemitError, match="closed"):
                await ask(models)

    asyncio.run(beside())
