"""Inspecting artifacts: inside the root, regular files only, in bounded time."""

import hashlib
import os
import socket
import time
from pathlib import Path

import pytest

from remit.system.artifact_files import FileInfo, FileProblem, inspect_artifact, path_fault, relative_path
from support.pace import allowed


def test_size_hash_and_time_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.md").write_bytes(b"hello")
    seen = inspect_artifact(tmp_path, "sub/a.md")
    assert isinstance(seen, FileInfo)
    assert (seen.size, seen.sha256, seen.is_whole) == (5, hashlib.sha256(b"hello").hexdigest(), True)
    assert abs(seen.mtime - time.time()) < 60


@pytest.mark.parametrize("path", ["", " ", "/etc/passwd", "../x", "a/../../x", "a/..", "a\0b", ".", "./", "~/x", "a/" * 3000])
def test_path_outside_the_root_is_refused_by_its_text(path: str) -> None:
    assert path_fault(path)
    seen = inspect_artifact(Path("."), path)
    assert isinstance(seen, FileProblem)
    assert seen.is_outside


def test_symlink_out_of_the_root_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "real.md").write_text("real")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    (root / "in").symlink_to("real.md")
    (root / "loop").symlink_to("loop")
    for path in ("out", "up/secret"):
        seen = inspect_artifact(root, path)
        assert isinstance(seen, FileProblem)
        assert seen.is_outside
    assert isinstance(inspect_artifact(root, "in"), FileInfo)
    assert isinstance(inspect_artifact(root, "loop"), FileProblem)


def test_root_may_be_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("a")
    (tmp_path / "root").symlink_to("real")
    assert isinstance(inspect_artifact(tmp_path / "root", "a"), FileInfo)


def test_special_and_empty_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        reasons = {name: inspect_artifact(tmp_path, name) for name in ("pipe", "folder", "socket", "empty", "absent", "empty/x")}
    texts = {name: seen.reason for name, seen in reasons.items() if isinstance(seen, FileProblem)}
    assert texts["pipe"] == texts["folder"] == texts["socket"] == "is not a regular file"
    assert texts["empty"] == "is empty"
    assert texts["absent"] == texts["empty/x"] == "does not exist"


def test_hashing_stops_at_its_deadline(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(8 << 30)
    began = time.monotonic()
    seen = inspect_artifact(tmp_path, "huge", stop_at=began + 0.05)
    assert time.monotonic() - began < allowed(2)
    assert isinstance(seen, FileInfo)
    assert (seen.size, seen.is_whole) == (8 << 30, False)


def test_absolute_path_inside_the_root_becomes_relative(tmp_path: Path) -> None:
    assert relative_path(tmp_path, tmp_path / "a" / "b.md") == "a/b.md"
    assert relative_path(tmp_path, "a/b.md") == "a/b.md"
    assert relative_path(tmp_path, "/etc/passwd") == "/etc/passwd"
