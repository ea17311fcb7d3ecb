"""Remote agents over A2A: messages, lost connections, and hostile servers."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_http import FakeServer, Request, begin_stream, hostile, respond

from remit import Remit, Return

CARD = "/.well-known/agent-card.json"
Rpc = Callable[[str, Any, asyncio.StreamWriter], Awaitable[None]]


def card(url: str, *, streaming: bool = True, **more: Any) -> bytes:
    interfaces = [{"url": f"{url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    fields = {
        "name": "far",
        "description": "d",
        "version": "1",
        "capabilities": {"streaming": streaming},
        "supportedInterfaces": interfaces,
    }
    return json.dumps({**fields, "skills": [], **more}).encode()


def task(state: str, text: str = "", **more: Any) -> dict[str, Any]:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return {"id": "t-1", "contextId": "c-1", "status": {"state": f"TASK_STATE_{state}", "message": message}, **more}


async def reply(writer: asyncio.StreamWriter, request: Any, result: Any) -> None:
    await respond(writer, 200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode())


async def event(writer: asyncio.StreamWriter, request: Any, result: Any) -> None:
    writer.write(b"data: " + json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n\n")
    await writer.drain()


@contextlib.asynccontextmanager
async def a2a_server(rpc: Rpc, *, streaming: bool = True) -> AsyncIterator[FakeServer]:
    """A server with a valid agent card; `rpc` handles all other requests."""

    async def answer(received: Request, writer: asyncio.StreamWriter) -> None:
        if received.path == CARD:
            await respond(writer, 200, card(f"http://{received.headers['host']}", streaming=streaming))
        else:
            await rpc(received.json["method"], received.json, writer)

    async with hostile(answer) as web:
        yield web


async def delegated(root: Path, url: str, *, timeout: float = 10, resume: str | None = None, **parameters: Any) -> Return:
    async with Remit.open(root, settings={"builtin_agents": [], "agents": {"far": {"a2a": url}}}) as remit:
        return await remit.delegate("far", parameters=parameters or {"task": "go"}, timeout=timeout, resume=resume)


def methods(web: FakeServer) -> list[str]:
    return [received.json["method"] for received in web.requests if received.method == "POST"]


async def test_task_is_sent_as_text_and_progress_is_streamed(tmp_path: Path) -> None:
    async def rpc(method: str, request: Any, writer: asyncio.StreamWriter) -> None:
        pieces = [{"artifactId": "a", "parts": [{"text": text}]} for text in ("one ", "two")]
        if method == "GetTask":
            whole = {"artifactId": "a", "parts": [{"text": "one "}, {"text": "two"}]}
            await reply(writer, request, task("COMPLETED", "Done it.", artifacts=[whole]))
            return
        about = {"taskId": "t-1", "contextId": "c-1"}
        await begin_stream(writer)
        await event(writer, request, {"task": task("SUBMITTED")})
        await event(writer, request, {"statusUpdate": {**about, "status": task("WORKING", "Half way.")["status"]}})
        for piece in pieces:
            await event(writer, request, {"artifactUpdate": {**about, "artifact": piece, "append": True}})
        await event(writer, request, {"statusUpdate": {**about, "status": task("COMPLETED", "Done it.")["status"]}})

    async with (
        a2a_server(rpc) as web,
        Remit.open(tmp_path, settings={"builtin_agents": [], "agents": {"far": {"a2a": web.url}}}) as remit,
    ):
        returned = await remit.delegate("far", parameters={"task": "count"})
        assert (returned.unwrap(), returned.summary) == ("one two", "Done it.")
        assert methods(web) == ["SendStreamingMessage", "GetTask"]
        sent = next(received for received in web.requests if received.method == "POST")
        message = sent.json["params"]["message"]
        assert (message["parts"][0]["text"], message["messageId"]) == ("count", f"{returned.session_id}-0")
        assert sent.headers["traceparent"].startswith("00-")
        events = [event.body for event in await remit.events(returned.session_id)]
        assert {"message": "Half way."} in events
        assert {"chunk": "one "} in events


async def test_lost_stream_is_resumed_and_non_streaming_server_is_polled(tmp_path: Path) -> None:
    reads = 0

    async def lossy(method: str, request: Any, writer: asyncio.StreamWriter) -> None:
        nonlocal reads
        if method == "SubscribeToTask" and methods(web).count(method) == 1:
            return  # the connection drops again
        if method == "GetTask":
            reads += 1
            await reply(writer, request, task("WORKING") if reads < 3 else task("COMPLETED", "After all.", artifacts=[RESULT]))
        elif method == "SendMessage":
            await reply(writer, request, {"task": task("SUBMITTED")})
        else:
            await begin_stream(writer)
            await event(writer, request, {"task": task("WORKING")})

    RESULT = {"artifactId": "x", "parts": [{"data": {"n": 1}}]}
    async with a2a_server(lossy) as web:
        returned = await delegated(tmp_path, web.url)
        assert (returned.unwrap(), returned.summary) == ({"n": 1}, "After all.")
        assert methods(web)[0] == "SendStreamingMessage"
        assert methods(web).count("SendStreamingMessage") == 1
        assert "SubscribeToTask" in methods(web)
    reads = 0
    async with a2a_server(lossy, streaming=False) as web:
        assert (await delegated(tmp_path, web.url)).unwrap() == {"n": 1}
        assert methods(web) == ["SendMessage", "GetTask", "GetTask", "GetTask"]


async def test_input_receivedblocks_the_delegation_and_resume_answers_it(tmp_path: Path) -> None:
    async def rpc(method: str, request: Any, writer: asyncio.StreamWriter) -> None:
        if method == "GetTask":
            await reply(writer, request, task("INPUT_REQUIRED", "Which colour?"))
        else:
            is_answer = request["params"]["message"].get("taskId") == "t-1"
            await reply(writer, request, {"task": task("COMPLETED", "Painted.") if is_answer else task("INPUT_REQUIRED", "Which colour?")})

    async with a2a_server(rpc, streaming=False) as web:
        blocked = await delegated(tmp_path, web.url)
        assert (str(blocked.status), blocked.errors[0].code, blocked.errors[0].message) == (
            "blocked",
            "INPUT_REQUIRED",
            "Which colour?",
        )
        assert f"resume={blocked.session_id}" in blocked.next_steps
        done = await delegated(tmp_path, web.url, resume=blocked.session_id, task="blue")
        assert (done.ok, done.summary) == (True, "Painted.")


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [
        ("REJECTED", "failed", "REJECTED"), ("FAILED", "failed", "UNKNOWN_ERROR"), ("AUTH_REQUIRED", "blocked", "AUTH_REQUIRED"),
        ("CANCELED", "failed", "CANCELLED"),
    ],
)  # fmt: skip
async def test_unsuccessful_task_is_reported_with_its_message(tmp_path: Path, state: str, status: str, code: str) -> None:
    async def rpc(_method: str, request: Any, writer: asyncio.StreamWriter) -> None:
        await reply(writer, request, {"task": task(state, "Not on a Sunday.")})

    async with a2a_server(rpc, streaming=False) as web:
        returned = await delegated(tmp_path, web.url)
        assert (str(returned.status), returned.errors[0].code, returned.errors[0].message) == (status, code, "Not on a Sunday.")


async def test_received_files_get_safe_names_and_urls_are_not_fetched(tmp_path: Path) -> None:
    names = ["../../../etc/passwd", "/abs", "..", "a\\..\\b.txt", "", ".hidden", "x" * 300, "ok.md", "ok.md"]

    async def rpc(_method: str, request: Any, writer: asyncio.StreamWriter) -> None:
        files = [{"raw": "aGVsbG8=", "filename": name} for name in names]
        artifact = {"artifactId": "f", "name": "../up", "parts": [*files, {"url": f"{web.url}/secret", "filename": "s"}]}
        await reply(writer, request, {"task": task("COMPLETED", "There.", artifacts=[artifact])})

    async with a2a_server(rpc, streaming=False) as web:
        returned = await delegated(tmp_path, web.url)
        assert returned.ok, returned
        assert returned.data == {"url": f"{web.url}/secret", "filename": "s"}
        assert "/secret" not in [received.path for received in web.requests]
    paths = [artifact.path for artifact in returned.artifacts]
    scratch = f".remit/scratch/{returned.session_id}/remote"
    assert len(set(paths)) == len(names)
    assert all(path.startswith(f"{scratch}/0") and "/" not in path.removeprefix(f"{scratch}/") and ".." not in path for path in paths)
    assert {artifact.size for artifact in returned.artifacts} == {5}


async def test_cancel_is_sent_to_the_remote_task(tmp_path: Path) -> None:
    async def rpc(method: str, request: Any, writer: asyncio.StreamWriter) -> None:
        if method == "CancelTask":
            await reply(writer, request, task("CANCELED"))
            return
        await begin_stream(writer)
        await event(writer, request, {"task": task("WORKING", "Off we go.")})
        await asyncio.sleep(60)

    async with (
        a2a_server(rpc) as web,
        Remit.open(tmp_path, settings={"builtin_agents": [], "agents": {"far": {"a2a": web.url}}}) as remit,
    ):
        handle = await remit.start("far", parameters={"task": "go"})
        async for output in handle.stream():
            if output.body.get("message") == "Off we go.":
                break
        await handle.cancel("enough")
        await web.until(3)
        assert methods(web) == ["SendStreamingMessage", "CancelTask"]
        assert web.requests[-1].json["params"]["id"] == "t-1"


# ---- hostile servers


async def endless(_method: str, request: Any, writer: asyncio.StreamWriter) -> None:
    await begin_stream(writer)
    for number in range(10**9):
        await event(writer, request, {"statusUpdate": {"taskId": "t-1", "status": task("WORKING", f"{number}")["status"]}})
        await asyncio.sleep(0.002)


async def silent(_method: str, _request: Any, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("rpc", [endless, silent])
async def test_endless_remote_task_ends_at_the_local_deadline(tmp_path: Path, rpc: Rpc) -> None:
    async with a2a_server(rpc) as web:
        returned = await delegated(tmp_path, web.url, timeout=1)
        assert (str(returned.status), str(returned.stop_reason)) == ("partial", "deadline")


def flood(head: bytes, piece: bytes) -> Rpc:
    async def rpc(_method: str, _request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece * 65536)
            await writer.drain()

    return rpc


def answering(status: int, body: bytes, *headers: str) -> Rpc:
    async def rpc(_method: str, _request: Any, writer: asyncio.StreamWriter) -> None:
        await respond(writer, status, body, *headers)

    return rpc


HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "
INVALID = {
    "huge event": flood(HEAD + b"text/event-stream\r\n\r\ndata: ", b"x"),
    "huge answer": flood(HEAD + b"application/json\r\n\r\n", b" "),
    "packed": answering(200, gzip.compress(b"0" * 10**6), "application/json", "Content-Encoding: gzip"),
    "redirect": answering(307, b"", "text/plain", "Location: http://169.254.169.254/latest/"),
    "nonsense": answering(200, b'{"jsonrpc": "2.0", "id": 1, "result": {"task": {"status": [1, 2], "id": {}}}}'),
    "not JSON": answering(200, b"data: {]\n\n", "text/event-stream"),
    "deep": answering(200, b'{"result":' * 5000 + b"1" + b"}" * 5000),
}


@pytest.mark.parametrize("rpc", INVALID.values(), ids=INVALID)
async def test_invalid_response_fails_with_a_reason(tmp_path: Path, rpc: Rpc) -> None:
    async with a2a_server(rpc) as web:
        returned = await delegated(tmp_path, web.url, timeout=20)
        assert (str(returned.status), str(returned.stop_reason)) == ("failed", "finished"), returned
        assert "Traceback" not in returned.to_json()
        assert returned.errors[0].code in ("TOO_LARGE", "UNKNOWN_ERROR")


@pytest.mark.parametrize("attack", ["other host", "huge", "list", "html", "internal host", "redirect", "nothing"])
async def test_agent_card_cannot_redirect_or_exhaust_memory(tmp_path: Path, attack: str) -> None:
    async def answer(received: Request, writer: asyncio.StreamWriter) -> None:
        assert received.path == CARD
        match attack:
            case "other host":
                await respond(writer, 200, card("http://93.184.215.14"))
            case "internal host":
                await respond(writer, 200, card("http://169.254.169.254"))
            case "huge":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
                while True:
                    writer.write(b" " * 65536)
                    await writer.drain()
            case "list":
                await respond(writer, 200, b"[1, 2]")
            case "html":
                await respond(writer, 200, b"<html>", "text/html")
            case "redirect":
                await respond(writer, 302, b"", "text/plain", "Location: http://127.0.0.1:1/")
            case _:
                await respond(writer, 404)

    async with hostile(answer) as web:
        returned = await delegated(tmp_path, web.url)
        assert not returned.ok
        assert len(web.requests) == 1
        assert "Traceback" not in returned.to_json()


async def test_token_is_neither_sent_in_clear_text_nor_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "far-away-token-0123456789"

    async def shut(_method: str, _request: Any, writer: asyncio.StreamWriter) -> None:
        await respond(writer, 401, f"no, {secret} is wrong".encode(), "text/plain")

    async with a2a_server(shut) as web:
        declared = {"a2a": web.url, "token_variable": "FAR_KEY"}
        agents = {"far": declared, "clear": {"a2a": "http://93.184.215.14/", "token_variable": "FAR_KEY"}}
        async with Remit.open(tmp_path, settings={"builtin_agents": [], "agents": agents}) as remit:
            missing = await remit.delegate("far", parameters={"task": "x"})
            assert (str(missing.status), missing.errors[0].code) == ("blocked", "TOOL_UNAVAILABLE")
            assert "FAR_KEY" in missing.errors[0].message
            monkeypatch.setenv("FAR_KEY", secret)
            rejected = await remit.delegate("far", parameters={"task": "x"})
            assert (str(rejected.status), rejected.errors[0].code) == ("blocked", "TOOL_UNAVAILABLE")
            assert web.requests[-1].headers["authorization"] == f"Bearer {secret}"
            clear = await remit.delegate("clear", parameters={"task": "x"})
            assert "in the clear" in clear.errors[0].message
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):  # noqa: ASYNC240 - nothing else runs here
        assert secret.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_token_is_not_sent_to_another_port_or_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """Another port of the host may belong to another user. Without a token, the card may name any port."""
    monkeypatch.setenv("FAR_KEY", "far-away-token-0123456789")

    async def steal(_: Request, writer: asyncio.StreamWriter) -> None:
        await respond(writer, 404, b"")

    async with hostile(steal) as attacker:
        other_card = card(f"{scheme}://{attacker.url.removeprefix('http://')}")

        async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
            await respond(writer, 200, other_card)

        async with hostile(answer) as web:
            agents = {"far": {"a2a": web.url, "token_variable": "FAR_KEY"}, "open": {"a2a": web.url}}
            async with Remit.open(tmp_path, settings={"builtin_agents": [], "agents": agents}) as remit:
                refused = await remit.delegate("far", task="go", timeout=10)
                assert (refused.status, refused.errors[0].code) == ("failed", "AGENT_UNAVAILABLE")
                assert "at that address" in refused.errors[0].message
                assert attacker.requests == []
                if scheme == "http":
                    await remit.delegate("open", task="go", timeout=10)
                    assert attacker.requests
                    assert not any("authorization" in received.headers for received in attacker.requests)
