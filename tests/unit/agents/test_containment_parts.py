"""Parts of containment: host lists, the proxy, and the copied configuration of a vendor."""

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.agents.containment.gateway import Gateway
from remit.agents.containment.hosts import HostList
from remit.agents.containment.vendor_home import refresh_keys, vendor_home
from remit.agents.definition import Declaration, definition_of
from remit.agents.profiles import profile_on
from remit.system.http import parse_target
from remit.system.ip_addresses import Address


@pytest.mark.parametrize(
    ("executor", "file", "is_then"), [(True, False, True), (True, "auto", True), ("auto", False, "auto"), (False, True, True)]
)
def test_agent_file_cannot_weaken_the_containment_of_its_executor(executor: Any, file: Any, is_then: Any) -> None:
    on = Declaration(name="claude", table={"kind": "claude", "contain": executor}, source="remit.toml")
    profile = Declaration(name="one", table={"contain": file}, source=".remit/agents/one.md")
    assert profile_on(profile, on, definition_of("claude", on.table, source="remit.toml")).contain == is_then


@pytest.mark.parametrize(
    ("listed", "asked", "is_allowed"),
    [
        ("example.com", "example.com:443", True),
        ("example.com", "EXAMPLE.com.:443", True),
        ("example.com", "example.com:80", False),
        ("example.com", "evil-example.com:443", False),
        ("example.com", "www.example.com:443", False),
        ("*.example.com", "www.example.com:443", True),
        ("*.example.com", "example.com:443", False),
        ("*.example.com", "wwwexample.com:443", False),
        ("example.com:8443", "example.com:8443", True),
        ("10.1.0.0/16:8443", "10.1.2.3:8443", True),
        ("10.1.0.0/16", "10.2.2.3:443", False),
        ("127.0.0.1:8080", "127.0.0.1:8080", True),
        ("127.0.0.1:8080", "[::ffff:127.0.0.1]:8080", False),
        ("[::1]:8080", "[::1]:8080", True),
    ],
)
def test_allowed_host_matches_exactly_or_by_suffix(listed: str, asked: str, is_allowed: bool) -> None:
    assert HostList([listed]).allows(parse_target(f"https://{asked}/")) is is_allowed


@asynccontextmanager
async def proxy_of(hosts: Sequence[str], addresses: Sequence[str]) -> AsyncIterator[tuple[int, list[str]]]:
    """A gateway on a local port with a DNS server that an attacker controls, and the list of its refusals."""
    import ipaddress
    import socket

    refused: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[Address]:
        return [ipaddress.ip_address(one) for one in addresses]

    async def note(facts: Any, because: str) -> None:
        refused.append(because)

    async def permit(action: str = "", /, **facts: Any) -> None:
        return

    gateway = Gateway(HostList(hosts), permit, note, resolve=resolve)
    listener = socket.create_server(("127.0.0.1", 0))
    await gateway.serve(listener, {})
    try:
        yield listener.getsockname()[1], refused
    finally:
        await gateway.close()


async def ask(port: int, head: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.read(2000), 10)
    writer.close()
    return answer.decode()


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "::ffff:127.0.0.1", "100.64.0.1", "0.0.0.0"])
async def test_allowed_name_that_resolves_to_a_private_address_is_refused(address: str) -> None:
    """DNS rebinding: the owner of a name changes its address. Refused even if only one of several addresses is private."""
    async with proxy_of(["rebind.example.com"], ["93.184.215.14", address]) as (port, refused):
        answer = await ask(port, "CONNECT rebind.example.com:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith("HTTP/1.1 403 ")
    assert "not a public address" in refused[0]


def hello_for(name: str | None) -> bytes:
    """TLS ClientHello as OpenSSL sends it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(received, sent, server_hostname=name).do_handshake()
    return sent.read()


@pytest.mark.parametrize(
    ("first", "is_passed"),
    [
        (hello_for("example.com"), True),
        (hello_for("Example.COM"), True),
        (hello_for("evil.example.net"), False),
        (hello_for(None), False),
        (b"GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n", False),
        (hello_for("example.com")[:40] + b"\0" * 600, False),
        (b"\x16\x03\x01\x00\x05" + b"\x01\x00\x00\x01\x03", False),
    ],
)
async def test_tls_server_name_must_match_the_requested_host(first: bytes, is_passed: bool) -> None:
    """Otherwise an allowed host on a shared address (a CDN) would give access to every host at that address."""
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.put_nowait(await reader.read(len(first)))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with proxy_of([f"example.com:{port}", f"127.0.0.1:{port}"], ["127.0.0.1"]) as (proxy, refused):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy)
            writer.write(f"CONNECT example.com:{port} HTTP/1.1\r\n\r\n".encode())
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            for piece in (first[:3], first[3:]):
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 10)
            writer.close()
            assert await asyncio.wait_for(received.get(), 10) == (first if is_passed else b"")
    assert bool(refused) is not is_passed


async def test_proxy_accepts_only_connect_and_survives_malformed_requests() -> None:
    async with proxy_of(["example.com"], ["127.0.0.1"]) as (port, _):
        assert (await ask(port, "GET http://example.com/ HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 405 ")
        assert (await ask(port, "CONNECT nonsense@@ HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 400 ")
        assert (await ask(port, "CONNECT\r\n\r\n")).startswith("HTTP/1.1 400 ")
        assert await ask(port, "x" * 40_000) == ""
        assert (await ask(port, "CONNECT other.example.com:443 HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 403 ")


def test_only_refreshed_credentials_are_written_back(tmp_path: Path) -> None:
    """Only known keys that existed, with the same type. Nothing through a symlink, nothing if the user signed in meanwhile."""
    own = tmp_path / "claude"
    own.mkdir()
    credentials = own / ".credentials.json"
    before = {"claudeAiOauth": {"accessToken": "a", "refreshToken": "r", "expiresAt": 1, "subscriptionType": "pro"}}
    environment = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(own)}

    def run(change: Any) -> Any:
        credentials.write_text(json.dumps(before))
        with vendor_home("claude", ("p", "a"), environment) as home:
            change(Path(home.environment()["CLAUDE_CONFIG_DIR"]))
        return json.loads(credentials.read_text())

    after = {"claudeAiOauth": {"accessToken": "b", "refreshToken": "s", "expiresAt": 2, "subscriptionType": "max"}}
    hostile = {**after, "hooks": {"x": "y"}, "claudeAiOauth": {**after["claudeAiOauth"], "more": "z"}}
    found = run(lambda folder: (folder / ".credentials.json").write_text(json.dumps(hostile)))
    assert found == {"claudeAiOauth": {"accessToken": "b", "refreshToken": "s", "expiresAt": 2, "subscriptionType": "pro"}}
    assert run(lambda folder: (folder / ".credentials.json").write_text("[" * 5000)) == before
    assert run(lambda folder: (folder / "settings.json").write_text('{"hooks": 1}')) == before
    assert sorted(path.name for path in own.iterdir()) == [".credentials.json"]

    secret = tmp_path / "elsewhere.json"
    secret.write_text(json.dumps(after))

    def link(folder: Path) -> None:
        (folder / ".credentials.json").unlink()
        (folder / ".credentials.json").symlink_to(secret)

    assert run(link) == before

    def sign_in(folder: Path) -> None:
        (folder / ".credentials.json").write_text(json.dumps(after))
        credentials.write_text(json.dumps({"claudeAiOauth": {"accessToken": "mine"}}))

    assert run(sign_in) == {"claudeAiOauth": {"accessToken": "mine"}}
    assert refresh_keys({"a": 1, "b": "x"}, {"a": "1", "b": "y\n"}, frozenset({"a", "b"})) == {"a": 1, "b": "x"}


def test_copied_vendor_directory_is_private_without_hooks_plugins_or_servers(tmp_path: Path, state_home: Path) -> None:
    home = tmp_path / "person"
    for name, text in {
        ".claude/settings.json": '{"model": "opus", "hooks": {"PreToolUse": []}, "apiKeyHelper": "x"}',
        ".claude.json": '{"userID": "u", "mcpServers": {"x": {}}, "projects": {}}',
        ".codex/config.toml": 'model = "m"\nnotify = ["x"]\n[mcp_servers.x]\ncommand = "x"\n',
        ".config/opencode/opencode.json": '{"model": "a/b", "plugin": ["x"], "mcp": {"x": {}}}',
        ".config/opencode/plugin/x.js": "x",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    copied = ""
    for vendor in ("claude", "codex", "opencode"):
        with vendor_home(vendor, ("p", "a"), {"HOME": str(home)}) as made:
            assert os.stat(made.home).st_mode & 0o077 == 0
            copied += "".join(path.read_text() for path in made.home.rglob("*") if path.is_file())
        assert not made.home.exists()
    assert all(word in copied for word in ('"opus"', '"u"', 'model = "m"', '"a/b"'))
    assert not [word for word in ("hooks", "apiKeyHelper", "mcp", "notify", "plugin", "command") if word in copied]
    assert os.stat(state_home / "remit" / "vendors").st_mode & 0o077 == 0
