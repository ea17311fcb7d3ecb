"""Project ownership: files of another user are refused, symlinks out of the project are not followed, a foreign database runs nothing."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from remit import Refused, Remit, SqliteStore, agent
from remit.runtime.workspaces import list_workspaces
from remit.server.mcp import server as mcp_server
from remit.system.trust import check_place, database_item
from support import cli
from support.server import LOCAL_FILE, Delegations, Grants, LocalToken, Progress, Service, Tokens, local_token, new_secret

pytestmark = pytest.mark.usefixtures("untrusted")
OTHER, THIRD = 23_456, 34_567
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")


@agent("shell", resumable=True, timeout=60)
def shell(command: str) -> str:
    """Represents any agent through which a project starts programs."""
    Path(command).write_text("ran")
    return "ran"


async def leave_unfinished(root: Path, command: Path) -> None:
    """Create a database with a delegation that its process did not finish."""
    began = asyncio.Event()

    @agent("shell", resumable=True, timeout=60)
    async def waits(command: str) -> None:
        began.set()
        await asyncio.sleep(60)

    async with Remit.open(root, agents=[waits]) as remit:
        await remit.start("shell", command=str(command))
        await began.wait()
        assert await remit.close(hand_over=True)


@pytest.fixture
async def clone(tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that contains a database of another installation."""
    victim = tmp_path / "victim"
    attacker = tmp_path / "attacker"
    (victim / ".remit").mkdir(parents=True)
    attacker.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    await leave_unfinished(attacker, victim / "owned")
    shutil.copyfile(attacker / ".remit" / "remit.db", victim / ".remit" / "remit.db")
    monkeypatch.setenv("XDG_STATE_HOME", str(state_home))
    return victim


async def opened(root: Path, **options: object) -> list[str]:
    """Open the project and wait for recovered delegations."""
    async with Remit.open(root, agents=[shell], **options) as remit:  # type: ignore[arg-type]
        for session_id in remit.recovered.resumed:
            await remit.result(session_id, wait_seconds=20)
        return remit.recovered.resumed


async def test_delegations_in_a_cloned_database_are_not_recovered(clone: Path) -> None:
    before = (clone / ".remit" / "remit.db").read_bytes()
    with pytest.raises(Refused, match="remit trust --adopt") as refused:
        await opened(clone)
    assert refused.value.code == "NOT_TRUSTED"
    assert not (clone / "owned").exists()
    assert (clone / ".remit" / "remit.db").read_bytes() == before


def test_writing_to_a_cloned_database_names_the_approval_command(clone: Path) -> None:
    before = (clone / ".remit" / "remit.db").read_bytes()
    for command in (("recover",), ("delegate", "worker.list_files"), ("serve", "--http", "127.0.0.1:0")):
        done = cli.run(*command, cwd=clone)
        assert done.code != 0
        assert "remit trust --adopt" in done.stderr, command
    assert (clone / ".remit" / "remit.db").read_bytes() == before


def test_cloned_database_can_be_read(clone: Path) -> None:
    listed = cli.run("history", cwd=clone)
    assert (listed.code, "shell" in listed.stdout) == (0, True), listed.stderr
    assert cli.run("show", "last", cwd=clone).code == 0
    assert [one.name for one in (clone / ".remit").glob("remit.db*")] == ["remit.db"]


async def test_cloned_database_over_mcp_names_the_approval_command(clone: Path) -> None:
    async with mcp_server._open(clone, None) as remit:
        tools, progress = Delegations(Service(remit), 5.0), Progress(mock.Mock(), None)
        listed = (await tools.call("list_agents", {}, progress)).structured_content
        asked = {"target": "worker", "operation": "list_files", "parameters": {}}
        refused = (await tools.call("delegate", asked, progress)).structured_content
    for answer in (listed, refused):
        assert answer["errors"][0]["code"] == "NOT_TRUSTED", answer
    assert "remit trust --adopt" in refused["errors"][0]["recommendation"]


@pytest.mark.parametrize(("typed", "is_adopted"), [("y\n", True), ("n\n", False)])
def test_terminal_user_is_asked_once_to_adopt_a_database(
    clone: Path, monkeypatch: pytest.MonkeyPatch, typed: str, *, is_adopted: bool
) -> None:
    monkeypatch.setattr("remit.cli.trust.person_here", object)
    first = cli.run("delegate", "worker.list_files", cwd=clone, stdin=typed)
    assert ".remit/remit.db was not made here" in first.stderr
    assert "Approve?" in first.stderr
    assert (first.code == 0) is is_adopted, first.stderr
    second = cli.run("delegate", "worker.list_files", cwd=clone, stdin="y\n")
    assert "Approve?" not in second.stderr
    assert (second.code == 0) is is_adopted, second.stderr


@pytest.mark.parametrize("options", [{"trust": True}, {}], ids=["in code", "remit trust --adopt"])
async def test_approved_database_is_adopted_once(clone: Path, options: dict[str, bool]) -> None:
    if not options:
        adopted = cli.run("trust", "--adopt", cwd=clone)
        assert (adopted.code, "the database is used" in adopted.stdout) == (0, True), adopted.stderr
    assert await opened(clone, **options)
    assert (clone / "owned").read_text() == "ran"
    assert database_item(clone) is None
    assert await opened(clone) == []


async def test_service_with_a_hash_uses_the_database_that_a_person_adopted(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is adopted on the command line, then opened by a service that has no terminal."""
    monkeypatch.setenv("REMIT_TRUST", cli.run_json("trust", "--list", cwd=clone)["hash"])
    with pytest.raises(Refused, match="remit trust --adopt"):
        await opened(clone)
    assert cli.run("trust", "--adopt", cwd=clone).code == 0
    assert await opened(clone)


async def test_database_created_here_is_used_and_a_replacement_is_not(clone: Path, tmp_path: Path) -> None:
    shipped = (clone / ".remit" / "remit.db").read_bytes()
    (clone / ".remit" / "remit.db").unlink()
    assert await opened(clone) == []
    assert await opened(clone) == []
    (clone / ".remit" / "remit.db").write_bytes(shipped)  # same inode: only the content differs
    with pytest.raises(Refused):
        await opened(clone)
    with pytest.raises(Refused):
        await opened(clone)
    assert database_item(clone) is not None
    assert not (clone / "owned").exists()


async def test_planted_write_ahead_log_is_not_replayed(tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite replays any log that it finds. New databases share a table layout, so a planted log can add delegations to run."""
    victim, attacker = tmp_path / "victim", tmp_path / "attacker"
    for root in (victim, attacker):
        root.mkdir()
    await opened(victim)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    await opened(attacker)
    keeps_it_open = SqliteStore(attacker / ".remit" / "remit.db")
    await leave_unfinished(attacker, victim / "owned")
    shutil.copyfile(attacker / ".remit" / "remit.db-wal", victim / ".remit" / "remit.db-wal")
    keeps_it_open.close()
    monkeypatch.setenv("XDG_STATE_HOME", str(state_home))
    with pytest.raises(Refused, match=r"rm .*remit.db-wal"):
        await opened(victim)
    assert "shell" not in cli_rows(victim)
    (victim / ".remit" / "remit.db-wal").unlink()
    assert await opened(victim) == []
    assert not (victim / "owned").exists()


def cli_rows(root: Path) -> str:
    """Rows in the database file itself, without any log."""
    with sqlite3.connect(f"file:{root}/.remit/remit.db?mode=ro&immutable=1", uri=True) as found:
        return str(found.execute("SELECT agent FROM delegations").fetchall())


async def test_moved_or_older_database_needs_approval(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    await opened(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(Refused):
        await opened(tmp_path / "there")
    (tmp_path / "old" / ".remit").mkdir(parents=True)
    SqliteStore(tmp_path / "old" / ".remit" / "remit.db").close()
    with pytest.raises(Refused):
        await opened(tmp_path / "old")


async def test_store_given_in_code_is_not_bound_to_an_installation(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "mine.db")
    assert await opened(tmp_path, store=store) == []
    store.close()
    with sqlite3.connect(tmp_path / "mine.db") as found:
        assert found.execute("SELECT count(*) FROM sqlite_master WHERE name='installation'").fetchone() == (0,)


async def test_database_whose_creator_was_killed_still_belongs_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "set_token", killed)
        with pytest.raises(KeyboardInterrupt):
            await opened(tmp_path)
    assert await opened(tmp_path) == []


def test_server_announced_by_a_clone_is_not_contacted(tmp_path: Path) -> None:
    (tmp_path / ".remit" / "run").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        entry = {"pid": os.getpid(), "pid_started": None, "grpc": f"127.0.0.1:{listening.getsockname()[1]}", "http": None}
        (tmp_path / ".remit" / "run" / "serve-1.json").write_text(json.dumps(entry))
        secret = tmp_path / ".remit" / "run" / LOCAL_FILE
        secret.write_text(new_secret())
        secret.chmod(0o600)
        assert cli.run("agents", cwd=tmp_path).code == 0
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_tokens_in_a_clone_do_not_authenticate(tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under umask 077 they are private files, like the user's own."""
    folder = tmp_path / ".remit"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    _, secret = Tokens(folder).new("theirs", Grants())
    owners = LocalToken(folder)
    owners.make()
    known = local_token(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(state_home))
    assert secret is not None
    assert Tokens(folder).find(secret) is None
    with pytest.raises(Refused, match="remit trust --adopt"):
        Tokens(folder).new("mine", Grants())
    server = LocalToken(folder)
    server.make()
    assert not server.is_it(known)
    assert server.is_it(local_token(folder))
    assert cli.run("trust", "--adopt", cwd=tmp_path).code == 0
    assert Tokens(folder).find(secret) is not None


# ---- workspaces

SESSION = "sess_1794855562_2eageb"


@pytest.fixture
def workspace_clone(tmp_path: Path) -> Path:
    """A clone with a workspace in its `.remit`, whose record names a command for git to run."""
    root, books = tmp_path / "clone", tmp_path / "clone" / ".remit" / "work" / ".books"
    tree = root / ".remit" / "work" / SESSION
    for folder in (tree, books / SESSION):
        folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "--bare", str(books / f"{SESSION}.git")], check=True)
    (tree / ".gitattributes").write_text("* filter=x\n")
    (tree / "a.txt").write_text("a\n")
    note = {
        "session_id": SESSION,
        "maker": SESSION,
        "kind": "worktree",
        "base": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "git_dir": f"../.books/{SESSION}.git",
        "common_dir": f"../.books/{SESSION}.git",
        "commands": {"filter.x.clean": f"touch {root}/owned; cat"},
        "fetching": "",
    }
    (books / SESSION / "note.json").write_text(json.dumps(note))
    return root


async def test_cleaning_up_a_cloned_workspace_starts_no_command(workspace_clone: Path) -> None:
    async with Remit.open(workspace_clone, settings={"cleanup_seconds": 0.01}) as remit:
        await remit.delegate("worker.list_files")
        for _ in range(100):
            if not list_workspaces(workspace_clone):
                break
            await asyncio.sleep(0.05)
    assert not list_workspaces(workspace_clone)
    assert not (workspace_clone / "owned").exists()


@pytest.mark.parametrize("words", [(), (SESSION,), (SESSION, "--diff")])
def test_listing_a_cloned_workspace_starts_no_command(workspace_clone: Path, words: tuple[str, ...]) -> None:
    cli.run("workspaces", *words, cwd=workspace_clone)
    assert not (workspace_clone / "owned").exists()


# ---- owner


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@needs_root
@pytest.mark.parametrize("name", [".", ".remit", "remit.toml"])
def test_project_of_another_user_is_refused_until_its_owner_is_approved(name: str, tmp_path: Path) -> None:
    (tmp_path / ".remit").mkdir()
    (tmp_path / "remit.toml").write_text("max_depth = 2\n")
    os.chown(tmp_path / name, OTHER, OTHER)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    for command in (("agents",), ("history",), ("delegate", "worker.list_files"), ("config",)):
        done = cli.run(*command, cwd=below)
        assert done.code != 0, command
        assert "belongs to another user" in done.stderr
        assert "remit trust --owner" in done.stderr
    with pytest.raises(Refused) as refused:
        Remit.open(tmp_path)
    assert refused.value.code == "NOT_TRUSTED"
    assert cli.run("trust", "--owner", cwd=below).code == 0
    assert cli.run("agents", cwd=below).code == 0
    Remit.open(tmp_path)


@needs_root
def test_projects_of_the_user_and_of_root_are_accepted_and_others_refused(state_home: Path) -> None:
    """Runs as another user, who cannot read root's approvals."""
    places, made = {}, contextlib.ExitStack()
    for uid in (0, OTHER, THIRD):
        places[uid] = Path(made.enter_context(tempfile.TemporaryDirectory()))  # pytest's own folders are accessible only to root
        (places[uid] / ".remit").mkdir()
        os.chown(places[uid] / ".remit", uid, uid)
        places[uid].chmod(0o755)
    with made, as_user(OTHER):
        check_place(places[0])
        check_place(places[OTHER])
        with pytest.raises(Refused, match="belongs to another user"):
            check_place(places[THIRD])


@pytest.mark.parametrize("name", [".", ".remit", "remit.toml"])
def test_world_writable_project_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / ".remit").mkdir()
    (tmp_path / "remit.toml").write_text("")
    place = tmp_path / name
    place.chmod(place.stat().st_mode | 0o1002)  # a sticky bit, as on /tmp, makes no difference
    with pytest.raises(Refused, match="can be written by every user"):
        Remit.open(tmp_path)


# ---- links


@pytest.mark.parametrize("name", [".remit", ".remit/remit.db", ".remit/remit.db-wal"])
def test_symlink_out_of_the_project_is_not_written_through(name: str, tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "clone"
    outside.mkdir()
    (root / name).parent.mkdir(parents=True)
    (root / name).symlink_to(outside if name == ".remit" else outside / "file")
    for environment in (None, {**os.environ, "REMIT_TRUST": "1"}):
        done = cli.run("delegate", "worker.list_files", cwd=root, env=environment)
        assert done.code != 0
        assert "leads out of the project" in done.stderr
    assert list(outside.iterdir()) == []
