"""`worker.read_file`, `write_file`, `delete_file` and `list_files`."""

import base64
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Remit, Return, agent
from remit.system.edits import TEMPORARY
from support.repository import begin, git


@pytest.fixture
async def remit(tmp_path: Path) -> AsyncIterator[Remit]:
    async with Remit.open(tmp_path) as opened:
        yield opened


async def ask(remit: Remit, operation: str, **parameters: Any) -> Any:
    done = await remit.delegate(f"worker.{operation}", parameters=parameters)
    assert done.ok, done.errors
    assert not done.warnings, done.warnings
    return done.data


def code(done: Return) -> str:
    assert not done.ok, done.summary
    assert done.errors[0].recommendation
    return done.errors[0].code


async def test_read_returns_content_encoding_and_sizes(remit: Remit, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Grüße\nzwei\n")
    done = await remit.delegate("worker.read_file", path="note.txt")
    assert done.summary == "note.txt was read from byte 0 to 13 of 13. The content is UTF-8 text."
    data = dict(done.data)
    assert data.pop("modifiedAt").startswith("20")
    sizes = {"offset": 0, "bytesRead": 13, "sizeBytes": 13, "truncated": False, "nextOffset": None}
    assert data == {"path": "note.txt", "content": "Grüße\nzwei\n", "encoding": "utf-8", **sizes}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
async def test_ranges_of_any_size_join_to_the_whole(remit: Remit, tmp_path: Path, encoding: str) -> None:
    text = "aä€😀b\n"
    raw = text.encode(encoding)
    (tmp_path / "x").write_bytes(raw)
    for limit in (1, 2, 3, 5, 7):
        joined, offset = "", 0
        while offset is not None:
            data = await ask(remit, "read_file", path="x", offset=offset, limit=limit)
            joined += data["content"]
            assert data["nextOffset"] is None or data["nextOffset"] > offset
            assert data["bytesRead"] <= limit + 3, "whole characters"
            offset = data["nextOffset"]
        assert joined == text


@pytest.mark.parametrize(
    ("raw", "encoding", "content"),
    [
        (b"\xff\xfeh\0i\0", "utf-16-le", "hi"),
        (b"caf\xe9 cr\xe8me \x93quoted\x94", "cp1252", "café crème “quoted”"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "base64", base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").decode()),
        (bytes(range(1, 32)) * 20, "base64", base64.b64encode(bytes(range(1, 32)) * 20).decode()),
        ("überall Ä und ö, ".encode() * 20 + b"\xff", "utf-8", "überall Ä und ö, " * 20 + "\ufffd"),
        (b"", "utf-8", ""),
    ],
)
async def test_encoding_is_detected_and_a_guess_is_noted(remit: Remit, tmp_path: Path, raw: bytes, encoding: str, content: str) -> None:
    (tmp_path / "x").write_bytes(raw)
    data = await ask(remit, "read_file", path="x")
    assert (data["encoding"], data["content"]) == (encoding, content)
    assert ("not valid" in str(data.get("notes"))) == ("\ufffd" in content), "written back, it would destroy the file"
    if encoding == "cp1252":
        assert "guess" in data["notes"][0]
        assert (await ask(remit, "read_file", path="x", encoding="cp1251"))["content"] == raw.decode("cp1251")
        assert code(await remit.delegate("worker.read_file", path="x", encoding="rot13")) == "INVALID_PARAMETERS"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "out", "a/../b", ".remit/remit.db", ".remit/run/x.sock", "to_remit/remit.db"])
async def test_paths_outside_the_workspace_are_refused(remit: Remit, tmp_path: Path, path: str) -> None:
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "to_remit").symlink_to(".remit")
    for operation, more in (("read_file", {}), ("write_file", {"content": "x"}), ("delete_file", {}), ("search_files", {"pattern": "x"})):
        done = await remit.delegate(f"worker.{operation}", parameters={"path": path, **more})
        if (operation, path) != ("delete_file", "out"):
            assert code(done) in ("POLICY_DENIED", "INVALID_PARAMETERS", "FILE_NOT_FOUND"), (operation, done.summary)


async def test_protected_paths_are_refused_without_a_policy(tmp_path: Path) -> None:
    """The file access itself refuses them; the policy is for paths inside."""
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link").symlink_to("../.git")
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    async with Remit.open(tmp_path, settings={"policy_mode": "disabled"}) as remit:
        for path in ("../x", "/etc/passwd", "out", ".remit/x"):
            assert code(await remit.delegate("worker.read_file", path=path)) == "POLICY_DENIED"
        for path in (".git/hooks/pre-commit", "sub/link/hooks/pre-commit", ".remit/agents/a.py", ".GIT/x"):
            done = await remit.delegate("worker.write_file", path=path, content="x", create_parents=True)
            assert code(done) == "POLICY_DENIED", done.summary
        for path in (".git", ".remit", ".", "sub/link/hooks"):
            assert code(await remit.delegate("worker.delete_file", path=path, recursive=True)) == "POLICY_DENIED"
    assert (tmp_path / ".git" / "hooks").is_dir()


async def test_pipes_and_links_to_forbidden_files_are_refused(remit: Remit, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "harmless.txt").symlink_to(".env")
    assert code(await remit.delegate("worker.read_file", path="harmless.txt")) == "POLICY_DENIED"
    os.mkfifo(tmp_path / "pipe")
    assert code(await remit.delegate("worker.read_file", path="pipe")) == "POLICY_DENIED"
    assert code(await remit.delegate("worker.write_file", path="pipe", content="x")) == "POLICY_DENIED"
    assert (await ask(remit, "search_files", pattern="x"))["matches"] == []


async def test_worker_uses_the_workspace_of_its_caller(tmp_path: Path) -> None:
    @agent("copyist", workspace="worktree")
    async def copyist(ctx: Context) -> Any:
        await ctx.delegate("worker.write_file", path="note.txt", content="in the worktree")
        return (await ctx.delegate("worker.read_file", path="note.txt")).data["content"]

    begin(tmp_path)
    (tmp_path / "note.txt").write_text("in the project")
    git(tmp_path, "add", "note.txt")
    git(tmp_path, "commit", "-qm", "begun")
    async with Remit.open(tmp_path, agents=[copyist]) as remit:
        assert (await remit.delegate("copyist")).data == "in the worktree"
    assert (tmp_path / "note.txt").read_text() == "in the project"


WRITER = """
import sys
from remit.system.beneath import Root
from remit.system.edits import replace_file
number = 0
while True:
    for letter in b"ab":
        with Root(sys.argv[1]) as root, root.place("file") as place:
            replace_file(place, bytes([letter]) * 3_000_000)
        if number == 0:
            print("writing", flush=True)
        number += 1
"""


def test_killed_writer_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    content = (tmp_path / "file").read_bytes()
    assert content in (b"a" * 3_000_000, b"b" * 3_000_000)
    left = [name for name in os.listdir(tmp_path) if name != "file"]
    assert all(TEMPORARY.match(name) for name in left), left


async def test_non_empty_folder_needs_recursive_to_be_deleted(remit: Remit, tmp_path: Path) -> None:
    (tmp_path / "old" / "deep").mkdir(parents=True)
    (tmp_path / "old" / "deep" / "x").write_text("xyz")
    (tmp_path / "empty").mkdir()
    assert code(await remit.delegate("worker.delete_file", path="old")) == "INVALID_PARAMETERS"
    assert (tmp_path / "old" / "deep" / "x").exists()
    data = await ask(remit, "delete_file", path="old", recursive=True)
    assert (data["filesDeleted"], data["foldersDeleted"], data["sizeBytes"], data["type"]) == (1, 2, 3, "folder")
    await ask(remit, "delete_file", path="empty")
    assert not (tmp_path / "old").exists()
    assert not (tmp_path / "empty").exists()


async def test_folder_with_a_repository_or_a_protected_file_is_not_deleted(remit: Remit, tmp_path: Path) -> None:
    """Nothing in it is deleted."""
    (tmp_path / "lib" / "deep" / ".git").mkdir(parents=True)
    (tmp_path / "app" / "deep").mkdir(parents=True)
    (tmp_path / "app" / "deep" / ".env").write_text("KEY=x")
    for folder, name in (("lib", ".git"), ("app", ".env")):
        (tmp_path / folder / "a").write_text("x")
        done = await remit.delegate("worker.delete_file", path=folder, recursive=True)
        assert code(done) == "POLICY_DENIED"
        assert f"{folder}/deep/{name}" in done.errors[0].message
        assert (tmp_path / folder / "a").exists()


async def test_listing_omits_ignored_files_and_remit_files(remit: Remit, tmp_path: Path) -> None:
    for name in ("src/a.py", "src/b.txt", "src/deep/c.py", "build/x.py", ".github/w.yml", "node_modules/m/i.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("build/\nnode_modules\n")
    (tmp_path / "src" / ".gitignore").write_text("*.txt\n")
    everything = await ask(remit, "list_files")
    paths = [entry["path"] for entry in everything["entries"]]
    assert [path for path in paths if path.endswith((".py", ".yml", ".txt", ".js"))] == [".github/w.yml", "src/a.py", "src/deep/c.py"]
    assert not [path for path in paths if path.startswith((".remit", ".git/"))]
    assert {"path", "type", "sizeBytes", "modifiedAt"} == set(everything["entries"][0])
    found = await ask(remit, "list_files", path="src", pattern="*.py", max_depth=1)
    assert [entry["path"] for entry in found["entries"]] == ["src/a.py"]
    found = await ask(remit, "list_files", pattern="src/**/*.py")
    assert [entry["path"] for entry in found["entries"]] == ["src/a.py", "src/deep/c.py"]
    found = await ask(remit, "list_files", path="build")
    assert [entry["path"] for entry in found["entries"]] == ["build/x.py"]
    found = await ask(remit, "list_files", pattern="*.txt", include_ignored=True)
    assert [entry["path"] for entry in found["entries"]] == ["src/b.txt"]


async def test_write_into_a_missing_folder_is_refused_with_advice(remit: Remit, tmp_path: Path) -> None:
    done = await remit.delegate("worker.write_file", path="notes/today.md", content="x")
    assert code(done) == "FILE_NOT_FOUND"
    assert "no folder to write notes/today.md in" in done.errors[0].message
    assert "create_parents=true" in done.errors[0].recommendation
    assert not (tmp_path / "notes").exists()
