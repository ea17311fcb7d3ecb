"""`remit.Client` against the real HTTP server, and against servers that break, hang or cannot stream."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from grpc_harness import Authority, tls_proxy
from hostile_http import FakeServer, Request, begin_stream, hostile, respond
from http_harness import Harness, http_harness

from remit import Client, DelegateError, Misused, Refused, Unavailable, discover
from support.pace import until
from support.server import announce, withdraw

COUNT: Any = {"target": "text", "operation": "count", "parameters": {"text": "some words"}}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with http_harness(tmp_path) as harness:
        yield harness


# ---- the real server


async def test_streaming_and_polling_give_the_same_result(harness: Harness) -> None:
    access = {"token": harness.token()}
    async with Client(harness.url, **access) as streaming, Client(harness.url, **access, streaming=False, poll_seconds=0.02) as polling:
        streamed = await streaming.delegate(**COUNT, session_id="conversation-1")
        polled = await polling.delegate(**COUNT, session_id="conversation-1")
        chunks = [chunk async for chunk in streaming.stream("slow", parameters={"seconds": 0.1})]
        slow = await polling.delegate("slow", parameters={"seconds": 0.1})
        assert await polling.get(streamed.task_id) == streamed
    for result in (streamed, polled):
        assert (result.success, result.task_state, result.data) == (True, "COMPLETED", 2)
        assert (result.metadata.target, result.metadata.operation) == ("text", "count")
    assert {"message": "begun", "fraction": 0.5} in [chunk.data for chunk in chunks]
    assert {"chunk": {"half": True}} in [chunk.data for chunk in chunks]
    assert chunks[-1].result.data == slow.data == "Slept."
    record = await harness.remit.describe(streamed.task_id)
    assert record.caller_info is not None
    assert record.caller_info.session == "conversation-1"


async def test_invalid_request_raises_and_a_failed_task_is_a_result(harness: Harness) -> None:
    async with Client(harness.url, token=harness.token()) as client:
        for request, code in (
            ({**COUNT, "target": "nobody"}, "INVALID_TARGET"),
            ({**COUNT, "operation": "fly"}, "INVALID_OPERATION"),
            ({**COUNT, "parameters": {}}, "INVALID_PARAMETERS"),
            ({**COUNT, "surprise": 1}, "INVALID_PARAMETERS"),
        ):
            with pytest.raises(DelegateError) as found:
                await client.delegate(**request)
            assert found.value.code == code, request
        failed = await client.delegate("fails")
        assert (failed.success, failed.task_state, failed.error.code) == (False, "FAILED", "TASK_FAILED")
    async with Client(harness.url, token="rmt_" + "x" * 49) as stranger:
        with pytest.raises(Refused, match="not authenticated"):
            await stranger.delegate(**COUNT)


async def test_cancelled_call_cancels_its_task_and_a_left_stream_does_not(harness: Harness) -> None:
    async with Client(harness.url, token=harness.token()) as client:
        stream = client.stream("slow")
        left = await anext(stream)
        await stream.aclose()
        call = asyncio.ensure_future(client.delegate("slow"))
        await until(lambda: len(harness.remit.engine.live()) == 2)
        await asyncio.sleep(0.1)
        call.cancel()
        await until(lambda: len(harness.remit.engine.live()) == 1)
        assert (await client.cancel(left.task_id)).task_state == "CANCELLED"


async def test_server_of_a_project_is_found_by_its_folder(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="remit serve"):
        discover(tmp_path)
    announce(tmp_path / ".remit" / "run", grpc=None, http=harness.url, token_file=None)
    (tmp_path / "deep" / "down").mkdir(parents=True)
    assert discover(tmp_path / "deep" / "down").address == harness.url
    monkeypatch.chdir(tmp_path / "deep")
    async with Client() as client:
        result = await client.delegate(**COUNT)
    record = await harness.remit.describe(result.task_id)
    assert record.caller_info is None or record.caller_info.principal == "orchestrator"
    withdraw(tmp_path / ".remit" / "run")


async def test_tls_is_verified_and_no_token_is_sent_in_the_clear(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    token = harness.token()
    async with tls_proxy(lambda: harness.url.removeprefix("http://"), authority.issue("server")) as address:
        url = f"https://{address}"
        async with Client(url, token=token, ca_file=authority.certificate) as client:
            assert (await client.delegate(**COUNT)).data == 2
        async with Client(url, token=token, ca_file=other.certificate, connect_seconds=0.3) as client:
            assert (await client.delegate(**COUNT)).error.code == "AGENT_UNAVAILABLE"
    with pytest.raises(Misused, match="in the clear"):
        Client("http://93.184.215.14", token=token)


# ---- servers that break


TASK_ID = "sess_12345678_abcdef"
Serve = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def task(state: str = "RUNNING") -> dict[str, Any]:
    moment = "2026-01-01T00:00:00+00:00"
    meta = {"agentId": "text.count", "createdAt": moment, "completedAt": None, "duration": None, "status": None, "stopReason": None}
    done = state == "COMPLETED"
    fields = {"success": done, "taskId": TASK_ID, "taskState": state, "data": None, "output": "", "artifacts": [], "error": None}
    return {**fields, "metadata": meta}


async def event(writer: asyncio.StreamWriter, number: int, kind: str = "progress", **data: Any) -> None:
    document = {"type": kind, "taskId": TASK_ID, "data": data or {"message": f"{number}"}}
    writer.write(f"event: {kind}\nid: {number}\ndata: {json.dumps(document)}\n\n".encode())
    await writer.drain()


def breaking(events: Serve, begin: Serve | None = None) -> Any:
    """A server that begins a task as scripted, and then runs `events` for each stream; the task never ends by itself."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.path.endswith("/cancel"):
            await respond(writer, 200, json.dumps({"cancelled": True, "nodes": [], "task": task("CANCELLED")}).encode())
        elif request.method == "POST" and begin is not None:
            await begin(request, writer)
        elif "/events" in request.path:
            await begin_stream(writer)
            await events(request, writer)
        else:
            await respond(writer, 202, json.dumps(task()).encode())

    return hostile(answer)


def keys(web: FakeServer) -> list[str]:
    return [request.json["key"] for request in web.requests if request.path == "/v1/tasks"]


async def test_broken_stream_resumes_and_a_lost_first_response_runs_once() -> None:
    async def begin(request: Request, writer: asyncio.StreamWriter) -> None:
        if len(keys(web)) > 1:  # the first response, which has the id, is lost
            await respond(writer, 202, json.dumps(task()).encode())

    async def events(request: Request, writer: asyncio.StreamWriter) -> None:
        after = int(request.path.partition("after=")[2])
        await event(writer, max(after, 1))  # repeated
        await event(writer, after + 2)
        if after >= 2:
            await event(writer, 9, "complete", result=task("COMPLETED"))

    async with breaking(events, begin) as web, Client(web.url) as client:
        chunks = [chunk async for chunk in client.stream(**COUNT)]
        assert [chunk.number for chunk in chunks] == [0, 1, 2, 4, 9]
        assert chunks[-1].result.success
        assert len(keys(web)) == 2
        assert len(set(keys(web))) == 1


async def stays_silent(request: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def floods(request: Request, writer: asyncio.StreamWriter) -> None:
    for number in itertools.count(1):
        await event(writer, number, message="x" * 1000, fraction=float("nan"))


async def completes_without_result(request: Request, writer: asyncio.StreamWriter) -> None:
    await event(writer, 2**62, "complete", result=task())


async def aborts(request: Request, writer: asyncio.StreamWriter) -> None:
    await event(writer, 1)


async def talks_nonsense(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"data: [1]\n\n")


@pytest.mark.parametrize("how", [stays_silent, floods, completes_without_result, aborts, talks_nonsense])
async def test_hostile_server_is_left_at_the_timeout_with_one_task(how: Serve) -> None:
    async with breaking(how) as web, Client(web.url, grace_seconds=0.1) as client:
        result = await asyncio.wait_for(client.delegate(**COUNT, timeout=700), 30)
        assert not result.success
        assert result.error.code == ("TASK_FAILED" if how is talks_nonsense else "TASK_TIMEOUT")
        assert len(set(keys(web))) == 1  # however often it is requested, the task is one


async def test_call_that_is_cancelled_before_the_first_answer_is_cancelled_by_its_key() -> None:
    async def begin(request: Request, writer: asyncio.StreamWriter) -> None:
        if len(keys(web)) == 1:
            await asyncio.sleep(60)
        await respond(writer, 202, json.dumps(task()).encode())

    async with breaking(stays_silent, begin) as web, Client(web.url) as client:
        call = asyncio.ensure_future(client.delegate(**COUNT))
        await web.until(1)
        call.cancel()
        await web.until(3)
        assert web.requests[-1].path == f"/v1/tasks/{TASK_ID}/cancel"
        assert len(set(keys(web))) == 1
