"""`worker.web_fetch` through a project: its policy decides, its record holds no secret."""

import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from web_server import Heard, WebServer, answer, raw, redirect, web_server

from remit import Remit, Return

ALLOWING = """
@id("agents-may-work")
permit (principal, action, resource);

@id("public-addresses-only")
forbid (principal, action in Action::"network", resource)
when { context has address && context.address != "public" }
unless { context has host && (context.host == "127.0.0.1" || context.host == "localhost") };
"""
"""What a project says that means to reach a server of its own."""


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


async def test_without_a_rule_nothing_inside_is_reached(tmp_path: Path) -> None:
    """The default policy: literal addresses are refused before anything runs, names once they are resolved."""
    with web_server({"/": answer("secret")}) as server:
        async with Remit.open(tmp_path) as remit:
            for host in ("127.0.0.1", "localhost", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0", socket.gethostname()):
                result = await remit.delegate("worker.web_fetch", url=f"http://{host}:{server.port}/")
                assert result.status == "failed", host
                assert result.errors[0].code in ("POLICY_DENIED", "INVALID_PARAMETERS") or host == socket.gethostname(), host
        assert server.heard == []


async def test_a_page_is_fetched_where_the_policy_allows_it(remit: Remit) -> None:
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


async def test_an_error_of_the_server_is_a_failure_that_keeps_what_it_said(remit: Remit) -> None:
    with web_server({"/": answer("<p>We are closed.</p>", status="503 Closed", type_="text/html")}) as server:
        gone = await remit.delegate("worker.web_fetch", url=f"{server.url}/gone")
        assert (gone.status, gone.errors[0].code, gone.data["status"], gone.data["text"]) == ("failed", "HTTP_ERROR", 404, "nothing here")
        assert not gone.errors[0].recoverable
        closed = await remit.delegate("worker.web_fetch", url=f"{server.url}/")
        assert (closed.errors[0].recoverable, closed.data["text"]) == (True, "We are closed.")


async def test_a_server_that_is_not_there_is_told_in_words(remit: Remit) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        result = await remit.delegate("worker.web_fetch", url=f"http://127.0.0.1:{port}/")
    assert (result.status, result.errors[0].code) == ("failed", "NETWORK_ERROR")
    assert f"127.0.0.1:{port} cannot be reached" in result.errors[0].message


async def test_a_slow_server_ends_in_time_with_what_came(remit: Remit) -> None:
    def drip(connection: socket.socket, _heard: Heard) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100000\r\n\r\nbegun ")
        while not server.stopping.wait(0.05):
            connection.sendall(b".")

    with web_server({}) as server:
        server.routes["/"] = drip
        result = await remit.delegate("worker.web_fetch", url=f"{server.url}/", timeout=3)
        assert (result.status, result.errors[0].code) == ("partial", "TIMEOUT")
        assert result.data["text"].startswith("begun .")
        assert result.data["truncated"]


async def test_a_file_is_kept_when_it_is_asked_for(remit: Remit) -> None:
    content = os.urandom(5000)
    with web_server({"/a/owl%20picture..png": answer(content, type_="image/png")}) as server:
        told = await remit.delegate("worker.web_fetch", url=f"{server.url}/a/owl%20picture..png")
        assert told.status == "completed"
        assert told.data["text"] == ""
        assert "save=true" in told.data["notes"][0]
        kept = await remit.delegate("worker.web_fetch", url=f"{server.url}/a/owl%20picture..png", save=True)
        assert (remit.root / kept.artifacts[0].path).read_bytes() == content
        assert Path(kept.artifacts[0].path).name == kept.data["file"] == "owl-20picture..png"


async def test_limits_are_the_callers_below_those_of_the_project(project: Path) -> None:
    (project / "remit.toml").write_text("[web]\nmax_bytes = 1000\n")
    with web_server({"/": answer("x" * 5000)}) as server:
        async with Remit.open(project, settings={"web": {"max_bytes": 20}}) as remit:
            given = await remit.delegate("worker.web_fetch", url=f"{server.url}/")
        async with Remit.open(project) as remit:
            less = await remit.delegate("worker.web_fetch", url=f"{server.url}/", maxBytes=10)
            more = await remit.delegate("worker.web_fetch", url=f"{server.url}/", max_bytes=4000)
            fewer = await remit.delegate("worker.web_fetch", url=f"{server.url}/", max_characters=7)
    assert given.data["bytes"] == 20, "settings given as arguments reach the process of the agent"
    assert [(r.data["bytes"], len(r.data["text"]), r.data["truncated"]) for r in (less, more, fewer)] == [
        (10, 10, True), (1000, 1000, True), (1000, 7, True),
    ]  # fmt: skip


async def test_words_about_wrong_headers_repeat_no_value(remit: Remit) -> None:
    for headers in ("Authorization: Bearer abcdef", {"Authorization": ["Bearer abcdef"]}, {"X": "a\r\nabcdef"}, ["abcdef"]):
        result = await remit.delegate("worker.web_fetch", url="http://127.0.0.1/", headers=headers)
        assert result.errors[0].code == "INVALID_PARAMETERS"
        assert "abcdef" not in str(result.to_dict())


async def test_what_is_sent_is_what_was_given(remit: Remit) -> None:
    with web_server({"/": answer('{"ok": true}', type_="application/json")}) as server:
        result = await remit.delegate("worker.web_fetch", url=f"{server.url}/", method="post", headers={"X-Count": 3}, body={"owls": 2})
        assert result.data["json"] == {"ok": True}
        heard = server.heard[0]
        assert (heard.method, json.loads(heard.body), heard.headers["x-count"]) == ("POST", {"owls": 2}, "3")
        refused = await remit.delegate("worker.web_fetch", url=f"{server.url}/", method="CONNECT")
        assert (refused.status, refused.errors[0].code) == ("failed", "INVALID_PARAMETERS")


# Of a header, of a cookie and the address, of a query.
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
    assert server.heard[0].headers["authorization"] == f"Bearer {SECRETS[0]}"
    return results


async def test_credentials_stand_nowhere_in_the_record(project: Path) -> None:
    """Keys, tokens and headers are redacted in results, logs, events and history, although the agent was given them."""
    routes = {"/": answer(f"<p>{SECRETS[2]}</p>", type_="text/html"), "/r": redirect("http://169.254.169.254/"), "/odd": raw(b"no HTTP")}
    with web_server(routes) as server:
        async with Remit.open(project) as remit:
            results = await fetch_with_secrets(remit, server)
            told = [json.dumps(result.to_dict(), default=str) for result in results]
            told += [
                str(event.body) for one in results for event in await remit.events(one.metadata.session_id) if event.kind == "progress"
            ]
    assert not [secret for secret in SECRETS[:2] if any(secret in one for one in told)]
    for file in (project / ".remit").rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not [secret for secret in SECRETS if secret.encode() in content], file


async def test_hostile_pages_end_with_an_answer(remit: Remit) -> None:
    """Parsed in a process with bounded memory: whatever a page holds, the caller hears of it."""
    nested = "<div>" * 200_000
    wide = "<p>" + "<i>x</i>" * 300_000
    with web_server({"/nested": answer(nested, type_="text/html"), "/wide": answer(wide, type_="text/html")}) as server:
        for path in ("/nested", "/wide"):
            result = await remit.delegate("worker.web_fetch", url=f"{server.url}{path}", timeout=5)
            assert result.status in ("completed", "partial"), result.errors
            assert result.data["status"] == 200


async def test_words_of_strangers_in_a_summary_steer_no_terminal(remit: Remit) -> None:
    head = "<title>\x1b]0;owned\x07\x1b[31mOwls\x9b2J</title><base href='http://[::1'>"
    page = f"<html><head>{head}</head><body><a href='/x'>a</a></body></html>"
    with web_server({"/": answer(page, type_="text/html\x1b[31m")}) as server:
        result = await remit.delegate("worker.web_fetch", url=f"{server.url}/")
    assert result.ok
    assert result.summary.isprintable()
