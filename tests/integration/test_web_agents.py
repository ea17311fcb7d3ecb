"""`worker.web_fetch` in a project: policy, limits and redaction."""

import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from web_server import Request, WebServer, answer, raw, redirect, web_server

from remit import Remit, Return

ALLOWING = """
@id("agents-may-work")
permit (principal, action, resource);

@id("public-addresses-only")
forbid (principal, action in Action::"network", resource)
when { context has address && context.address != "public" }
unless { context has host && (context.host == "127.0.0.1" || context.host == "localhost") };
"""
"""The policy of a project that fetches from its own server."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / ".remit"
    folder.mkdir()
    (folder / "policy.cedar").write_text(ALLOWING)
    return tmp_path


@pytest.fixture
async def remit(project: Path) -> AsyncIterator[Remit]:
    async with Remit.open(project) as opened:
        yield opened


async def test_internal_addresses_are_refused_by_default(tmp_path: Path) -> None:
    """Default policy: literal addresses are refused before the agent runs, names after resolution."""
    with web_server({"/": answer("secret")}) as server:
        async with Remit.open(tmp_path) as remit:
            for host in ("127.0.0.1", "localhost", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0", socket.gethostname()):
                result = await remit.delegate("worker.web_fetch", url=f"http://{host}:{server.port}/")
                assert result.status == "failed", host
                assert result.errors[0].code in ("POLICY_DENIED", "INVALID_PARAMETERS") or host == socket.gethostname(), host
        assert server.requests == []


async def test_page_is_fetched_if_the_policy_allows_it(remit: Remit) -> None:
    page = (
        "<html><head><title>Owls</title></head><body><p>An owl hunts at night, without a sound.</p><a href='/more'>More</a></body></html>"
    )
    with web_server({"/from": redirect("/owls"), "/owls": answer(page, type_="text/html")}) as server:
        result = await remit.delegate("worker.web_fetch", url=f"{server.url}/from")
        assert result.status == "completed", result.errors
        data = result.data
        assert (data["status"], data["title"], data["kind"], data["truncated"]) == (200, "Owls", "html", False)
        assert (data["url"], data["finalUrl"]) == (f"{server.url}/from", f"{server.url}/owls")
        assert "An owl hunts at night" in data["text"]
        assert data["links"] == [{"url": f"{server.url}/more", "text": "More"}]
        assert data["redirects"] == [{"status": 302, "from": f"{server.url}/from", "to": f"{server.url}/owls"}]
        assert data["fetchedAt"].endswith("Z")
        assert "“Owls”" in result.summary
        assert not [warning for warning in result.warnings if warning.startswith("summary")]


async def test_slow_server_times_out_with_partial_text(remit: Remit) -> None:
    def drip(connection: socket.socket, _requests: Request) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100000\r\n\r\nbegun ")
        while not server.stopping.wait(0.05):
            connection.sendall(b".")

    with web_server({}) as server:
        server.routes["/"] = drip
        result = await remit.delegate("worker.web_fetch", url=f"{server.url}/", timeout=3)
        assert (result.status, result.errors[0].code) == ("partial", "TIMEOUT")
        assert result.data["text"].startswith("begun .")
        assert result.data["truncated"]


async def test_binary_file_is_saved_on_request(remit: Remit) -> None:
    content = os.urandom(5000)
    with web_server({"/a/owl%20picture..png": answer(content, type_="image/png")}) as server:
        plain = await remit.delegate("worker.web_fetch", url=f"{server.url}/a/owl%20picture..png")
        assert plain.status == "completed"
        assert plain.data["text"] == ""
        assert "save=true" in plain.data["notes"][0]
        kept = await remit.delegate("worker.web_fetch", url=f"{server.url}/a/owl%20picture..png", save=True)
        assert (remit.root / kept.artifacts[0].path).read_bytes() == content
        assert Path(kept.artifacts[0].path).name == kept.data["file"] == "owl-20picture..png"


async def test_errors_about_headers_do_not_repeat_values(remit: Remit) -> None:
    for headers in ("Authorization: Bearer abcdef", {"Authorization": ["Bearer abcdef"]}, {"X": "a\r\nabcdef"}, ["abcdef"]):
        result = await remit.delegate("worker.web_fetch", url="http://127.0.0.1/", headers=headers)
        assert result.errors[0].code == "INVALID_PARAMETERS"
        assert "abcdef" not in str(result.to_dict())


async def test_method_headers_and_body_are_sent(remit: Remit) -> None:
    with web_server({"/": answer('{"ok": true}', type_="application/json")}) as server:
        result = await remit.delegate("worker.web_fetch", url=f"{server.url}/", method="post", headers={"X-Count": 3}, body={"owls": 2})
        assert result.data["json"] == {"ok": True}
        request = server.requests[0]
        assert (request.method, json.loads(request.body), request.headers["x-count"]) == ("POST", {"owls": 2}, "3")
        refused = await remit.delegate("worker.web_fetch", url=f"{server.url}/", method="CONNECT")
        assert (refused.status, refused.errors[0].code) == ("failed", "INVALID_PARAMETERS")


# In a header, in a cookie and the address, in a query.
SECRETS = ["not-a-real-key-0123456789", "hunter2-hunter2-hunter2", "query-secret-0123456789"]


async def fetch_with_secrets(remit: Remit, server: WebServer) -> list[Return]:
    results = [
        await remit.delegate(
            "worker.web_fetch",
            url=f"{server.url}{path}?access_token={SECRETS[2]}",
            headers={"Authorization": f"Bearer {SECRETS[0]}", "Cookie": f"session={SECRETS[1]}"},
        )
        for path in ("/", "/r", "/gone", "/odd")
    ]
    results.append(await remit.delegate("worker.web_fetch", url=f"http://ann:{SECRETS[1]}@127.0.0.1:{server.port}/"))
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRETS[0]}"
    return results


async def test_credentials_are_never_recorded(project: Path) -> None:
    """Keys, tokens and headers are redacted in results, logs, events and history."""
    routes = {"/": answer(f"<p>{SECRETS[2]}</p>", type_="text/html"), "/r": redirect("http://169.254.169.254/"), "/odd": raw(b"no HTTP")}
    with web_server(routes) as server:
        async with Remit.open(project) as remit:
            results = await fetch_with_secrets(remit, server)
            texts = [json.dumps(result.to_dict(), default=str) for result in results]
            texts += [
                str(event.body) for one in results for event in await remit.events(one.metadata.session_id) if event.kind == "progress"
            ]
    assert not [secret for secret in SECRETS[:2] if any(secret in one for one in texts)]
    for file in (project / ".remit").rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not [secret for secret in SECRETS if secret.encode() in content], file


async def test_http_error_is_a_failure_with_the_response_text_and_no_answer_a_network_error(remit: Remit) -> None:
    with web_server({"/": answer("<p>We are closed.</p>", status="503 Closed", type_="text/html")}) as server:
        gone = await remit.delegate("worker.web_fetch", url=f"{server.url}/gone")
        assert (gone.status, gone.errors[0].code, gone.data["status"], gone.data["text"]) == ("failed", "HTTP_ERROR", 404, "nothing here")
        assert not gone.errors[0].recoverable
        closed = await remit.delegate("worker.web_fetch", url=f"{server.url}/")
        assert (closed.errors[0].recoverable, closed.data["text"]) == (True, "We are closed.")
    silent = await remit.delegate("worker.web_fetch", url=f"{server.url}/")
    assert (silent.status, silent.errors[0].code) == ("failed", "NETWORK_ERROR")
    assert f"127.0.0.1:{server.port} cannot be reached" in silent.errors[0].message


async def test_summary_has_no_control_characters_of_a_page(remit: Remit) -> None:
    head = "<title>\x1b]0;owned\x07\x1b[31mOwls\x9b2J</title><base href='http://[::1'>"
    page = f"<html><head>{head}</head><body><a href='/x'>a</a></body></html>"
    with web_server({"/": answer(page, type_="text/html\x1b[31m")}) as server:
        result = await remit.delegate("worker.web_fetch", url=f"{server.url}/")
    assert result.ok
    assert result.summary.isprintable()
