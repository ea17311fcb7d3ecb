"""Hostile HTTP over raw sockets: smuggled, oversized, malformed and half-open requests.

The server refuses each one with a clear error or disconnects it, and continues to serve other clients.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
from http_harness import Harness, http_harness, problem_of, status_of, statuses_of

CHUNKED = "Transfer-Encoding: chunked"
AS_JSON = "Content-Type: application/json"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    async with http_harness(tmp_path_factory.mktemp("served"), request_bytes=64 * 1024) as opened:
        yield opened


async def still_serves(harness: Harness) -> None:
    heard = await harness.send_raw(harness.head("GET", "/v1/agents", "Connection: close") + b"\r\n")
    assert status_of(heard) == 200


def post(harness: Harness, body: bytes, *more: str, path: str = "/v1/tasks") -> bytes:
    return harness.head("POST", path, f"Content-Length: {len(body)}", AS_JSON, "Connection: close", *more) + b"\r\n" + body


# ---- request smuggling: requests that two servers may parse differently


AMBIGUOUS: tuple[tuple[str, str, bytes], ...] = (
    ("both lengths", f"Content-Length: 6\r\n{CHUNKED}\r\n", b"0\r\n\r\nGET"),
    ("two lengths", "Content-Length: 2\r\nContent-Length: 3\r\n", b"{}x"),
    ("a signed length", "Content-Length: +2\r\n", b"{}"),
    ("a vast length", f"Content-Length: {'9' * 30}\r\n", b"{}"),
    ("a hidden coding", "Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    ("chunked not last", "Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"),
    ("a space before the colon", "Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"),
    ("a bare carriage return", "X-Bare: a\rContent-Length: 2\r\n", b"{}"),
    ("a zero byte", "X-Zero: a\0b\r\n", b""),
    ("two hosts", "Host: 127.0.0.1\r\n", b""),
    ("a chunk of a bare line feed", f"{CHUNKED}\r\n", b"2\n{}\n0\n\n"),
    ("a chunk with a sign", f"{CHUNKED}\r\n", b"+2\r\n{}\r\n0\r\n\r\n"),
    ("a chunk longer than it says", f"{CHUNKED}\r\n", b"1\r\n{}\r\n0\r\n\r\n"),
    ("a vast chunk", f"{CHUNKED}\r\n", b"f" * 40 + b"\r\n{}"),
)


async def test_ambiguous_request_is_refused_and_closes_the_connection(harness: Harness) -> None:
    """Request smuggling."""
    smuggled = harness.head("GET", "/v1/agents") + b"\r\n"
    for what, header, body in AMBIGUOUS:
        raw = harness.head("POST", "/v1/tasks", AS_JSON) + header.encode("latin-1") + b"\r\n" + body + smuggled
        heard = await harness.send_raw(raw)
        assert statuses_of(heard) == [400], f"{what}: {heard!r}"
    assert not (await harness.remit.history())
    await still_serves(harness)


REQUEST_LINES = (
    b"GET http://evil.example/v1/agents HTTP/1.1",
    b"GET /v1/agents HTTP/1.1 ",
    b" GET /v1/agents HTTP/1.1",
    b"GET /v1/agents HTTP/9.9",
    b"GET /v1/\xff HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"CONNECT 127.0.0.1:1 HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"",
)


async def test_invalid_request_line_is_refused(harness: Harness) -> None:
    for line in REQUEST_LINES:
        heard = await harness.send_raw(line + b"\r\nHost: 127.0.0.1\r\nAuthorization: Bearer x\r\n\r\nSM\r\n\r\n")
        assert statuses_of(heard)[0] in (400, 401, 505), (line, heard)
    await still_serves(harness)


# ---- too large


async def test_oversized_request_is_refused_without_reading_the_rest(harness: Harness) -> None:
    announced = await harness.send_raw(harness.head("POST", "/v1/tasks", "Content-Length: 1000000000", AS_JSON) + b"\r\n{")
    assert (status_of(announced), problem_of(announced)["code"]) == (413, "TOO_LARGE")
    chunks = b"".join(b"4000\r\n" + b" " * 0x4000 + b"\r\n" for _ in range(8))
    unannounced = await harness.send_raw(harness.head("POST", "/v1/tasks", CHUNKED, AS_JSON) + b"\r\n" + chunks)
    assert (status_of(unannounced), problem_of(unannounced)["code"]) == (413, "TOO_LARGE")
    endless = await harness.send_raw(b"GET /" + b"a" * 200_000)
    assert status_of(endless) == 400
    await still_serves(harness)


# ---- malformed


NO_JSON: tuple[bytes, ...] = (
    b"{",
    b"not json",
    b'{"target": NaN}',
    b'{"target": "text", "timeout": 1e999}',
    b'{"target": "text", "parameters": {"text": [-1e999]}}',
    b'{"target": "\xff\xfe"}',
    b'\xef\xbb\xbf{"target": "text"}',
    '{"target": "text"}'.encode("utf-16"),
    b'{"target": "\\ud800"}',
    b'{"target": "te\x00xt"}',
    b'{"a":' * 50_00 + b"1" + b"}" * 50_00,
    b"[" * 20_000,
    b'{"target": "text", "parameters": ' + b'{"a":' * 150 + b"1" + b"}" * 150 + b"}",
    b'{"target": "text", "timeout": ' + b"9" * 5000 + b"}",
    b'{"target": "text", "parameters": {"text": ' + b"9" * 5000 + b"}}",
)


async def test_invalid_json_body_is_refused(harness: Harness) -> None:
    for body in NO_JSON:
        heard = await harness.send_raw(post(harness, body))
        assert (status_of(heard), problem_of(heard)["code"]) == (400, "INVALID_PARAMETERS"), (body[:80], heard)
    await still_serves(harness)


async def test_body_with_another_content_type_is_refused(harness: Harness) -> None:
    """A browser sends HTML forms without a preflight request, so they must not be parsed as JSON."""
    body = b'{"target": "fails"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "json"):
        more = (f"Content-Length: {len(body)}", f"Content-Type: {kind}", "Connection: close")
        assert status_of(await harness.send_raw(harness.head("POST", "/v1/tasks", *more) + b"\r\n" + body)) == 415
    assert status_of(await harness.send_raw(post(harness, body, "Content-Encoding: gzip"))) == 415


async def test_idle_connections_do_not_block_others(harness: Harness) -> None:
    silent = [await harness.connect() for _ in range(100)]
    for _, writer in silent[::2]:
        writer.write(b"GET /v1/agents HTTP/1.1\r\nHost: 127.0")
    await still_serves(harness)
