"""Refused attachments to a delegation tree: forged, stolen and expired tokens, and invalid data on the socket."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from tree_project import PYTHON, clean_environment, make_project, secret_in

from remit import Context, EventKind, Misused, Remit, agent
from remit.agents import attach_server
from remit.core.ids import CallerToken, new_secret
from remit.system.unix_sockets import connect_to
from support.pace import until

ADVICE = "Unset REMIT_CALLER to delegate as a new root."


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


@pytest.fixture
async def owner(project: Path) -> AsyncIterator[Remit]:
    async with Remit.open(project) as remit:
        yield remit


async def started(owner: Remit, tmp_path: Path) -> tuple[Any, CallerToken]:
    """A running process agent that has written its token to a file."""
    kept = tmp_path / "token"
    handle = await owner.start("tells", seconds=30.0, file=str(kept))
    await until(lambda: kept.exists() and kept.read_text())
    return handle, secret_in(kept)


def use(token: str) -> dict[str, Any]:
    """The refusal of the command line in a process of the test."""
    done = subprocess.run(
        [PYTHON, "-m", "remit", "delegate", "echo", "word=w", "--json"],
        env=clean_environment(REMIT_CALLER=token), capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    assert done.returncode == 5, done.stdout + done.stderr
    error: dict[str, Any] = json.loads(done.stdout)["error"]
    assert error["code"] == "CALLER_REFUSED"
    assert ADVICE in str(error)
    return error


async def test_stolen_token_is_refused_and_recorded(owner: Remit, tmp_path: Path) -> None:
    """The process that uses the stolen token is a child of the owner, but not of the agent."""
    handle, token = await started(owner, tmp_path)
    error = await asyncio.to_thread(use, token.encode())
    assert "used outside the processes of its delegation" in str(error)
    notices = [e.body["message"] for e in await owner.events(handle.session_id) if e.kind is EventKind.NOTICE]
    assert any("was refused" in notice for notice in notices)
    assert token.secret not in str(notices)
    await handle.cancel()
    assert [r.agent for r in await owner.tree(handle.session_id)] == ["tells"]
    (entry,) = await until(lambda: [e for e in owner.ledger.entries() if "CALLER_REFUSED" in str(e)])
    assert "tells" in str(entry)


async def test_altered_and_forged_tokens_are_refused(owner: Remit, tmp_path: Path) -> None:
    handle, token = await started(owner, tmp_path)
    other = token._replace(secret=new_secret())
    unknown = token._replace(session_id="sess_1700000000_aaaaaa")
    for text, words in (
        (other.encode(), "altered"),
        (unknown.encode(), "unknown"),
        (token.encode()[:-3], ""),
        ("remit1.nonsense", "altered"),
    ):
        assert words in str(await asyncio.to_thread(use, text))
    await handle.cancel()
    assert [r.agent for r in await owner.tree(handle.session_id)] == ["tells"]


async def test_token_of_an_ended_delegation_is_refused(project: Path, tmp_path: Path) -> None:
    """First the delegation has ended, then its owner too."""
    kept = tmp_path / "token"
    async with Remit.open(project) as owner:
        await owner.delegate("tells", file=str(kept))
        assert "has ended (completed)" in str(await asyncio.to_thread(use, kept.read_text()))
    assert "is gone" in str(await asyncio.to_thread(use, kept.read_text()))


async def test_token_of_an_inline_agent_is_valid_for_its_descendants_only(project: Path, tmp_path: Path) -> None:
    """An inline agent runs in this process: its child processes descend from it, processes adopted by init do not."""
    kept = tmp_path / "out"

    @agent("spawns")
    async def spawns(ctx: Context) -> int:
        words = [PYTHON, "-m", "remit", "delegate", "echo", "word=w"]
        child = await asyncio.create_subprocess_exec(*words, env={**os.environ, **ctx.environment()}, stdout=subprocess.DEVNULL)
        code = await child.wait()
        lonely = f"sleep 0.2; {' '.join(words)} --json > {kept}.part; mv {kept}.part {kept}"
        stray = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", f"setsid sh -c '{lonely}' > /dev/null 2>&1 &", env={**os.environ, **ctx.environment()}
        )
        await stray.wait()
        await until(kept.exists)
        return code

    async with Remit.open(project, agents=[spawns]) as owner:
        result = await owner.delegate("spawns")
        tree = await owner.tree(result.session_id)
    assert result.data == 0
    assert json.loads(kept.read_text())["error"]["code"] == "CALLER_REFUSED"
    assert [r.agent for r in tree] == ["spawns", "echo"]


async def test_silent_connections_are_closed_and_block_no_other(owner: Remit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach_server, "HELLO_SECONDS", 1.0)
    handle, token = await started(owner, tmp_path)
    silent: list[socket.socket] = []
    try:
        silent += [await asyncio.to_thread(connect_to, Path(token.address), 5.0) for _ in range(4 * attach_server.UNKNOWN_AT_ONCE)]
        assert (await owner.delegate("one", way="library", names=["echo"])).data["status"] == "completed"
        last = silent[-1]
        last.settimeout(5.0)
        assert await asyncio.to_thread(last.recv, 1) == b"", "disconnected after the time limit"
    finally:
        for sock in silent:
            sock.close()
    await handle.cancel()


_IMPOSTOR = """
import os, socket, sys
folder, name = os.path.split(sys.argv[1])
os.chdir(folder)  # the path may be longer than a socket address
listener = socket.socket(socket.AF_UNIX)
listener.bind(name)
listener.listen()
print("listening", flush=True)
line, _ = listener.accept()
print(line.recv(65536), flush=True)
"""


@contextlib.contextmanager
def impostor_at(address: str) -> Iterator[tuple[int, IO[str]]]:
    impostor = subprocess.Popen([PYTHON, "-c", _IMPOSTOR, address], stdout=subprocess.PIPE, text=True)
    assert impostor.stdout is not None
    try:
        assert impostor.stdout.readline() == "listening\n"
        yield impostor.pid, impostor.stdout
    finally:
        impostor.kill()
        impostor.wait()
        impostor.stdout.close()


async def test_token_is_not_sent_to_another_process_at_the_address(owner: Remit, tmp_path: Path) -> None:
    """The listening process must be the one that the token names."""
    handle, token = await started(owner, tmp_path)
    os.unlink(token.address)
    with impostor_at(token.address) as (pid, heard):
        error = await asyncio.to_thread(use, token.encode())
        assert f"Another process listens for the owner of this tree: process {pid}" in str(error)
        assert heard.readline() == "b''\n", "it received nothing"
    await handle.cancel()


async def test_remit_opened_outside_an_agent_is_refused_inside(tmp_path: Path) -> None:
    """Also of another project, and from a thread: its delegations would be outside the tree."""

    @agent("uses")
    async def uses() -> int:
        with pytest.raises(Misused, match=r"uses cannot delegate through a Remit that was opened outside it"):
            await other.delegate("echo", word="w")
        async with Remit.open(other.root) as own:
            return (await own.delegate("echo", word="w")).metadata.delegation_depth

    @agent("uses.thread")
    def uses_thread() -> None:
        with pytest.raises(Misused, match="opened outside it"):
            asyncio.run_coroutine_threadsafe(other.start("echo", word="w"), loop).result()

    loop = asyncio.get_running_loop()
    async with Remit.open(make_project(tmp_path / "other")) as other:
        async with Remit.open(make_project(tmp_path / "project"), agents=[uses, uses_thread]) as remit:
            assert (await remit.delegate("uses")).data == 2
            assert (await remit.delegate("uses.thread")).ok
        assert await other.history() == []


async def test_agents_that_only_the_attached_program_has_are_refused(project: Path) -> None:
    @agent("mine")
    async def mine() -> str:
        return "never"

    @agent("brings")
    async def brings() -> str:
        async with Remit.open("/", agents=[mine, agent("echo")(mine.function)]) as inner:
            with pytest.raises(Misused, match="opened by an agent uses the agents of its tree"):
                inner.register(agent("late")(mine.function))
            with pytest.raises(Misused, match="mine exists only in this process"):
                await inner.delegate("mine")
            return str((await inner.delegate("echo", word="the owner's")).data)

    async with Remit.open(project, agents=[brings]) as remit:
        assert (await remit.delegate("brings")).data == "the owner's"
