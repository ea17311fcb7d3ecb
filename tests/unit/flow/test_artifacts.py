"""Looking at artifacts: inside the root, regular, bounded, never hanging."""

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
def test_a_path_that_is_not_plainly_inside_is_refused_by_its_text(path: str) -> None:
    assert path_fault(path)
    seen = inspect_artifact(Path("."), path)
    assert isinstance(seen, FileProblem)
    assert seen.is_outside


def test_a_symlink_that_leads_out_is_refused_and_one_that_stays_inside_is_not(tmp_path: Path) -> None:
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


def test_a_root_that_is_itself_a_symlink_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("a")
    (tmp_path / "root").symlink_to("real")
    assert isinstance(inspect_artifact(tmp_path / "root", "a"), FileInfo)


def test_pipes_sockets_folders_and_empty_files_are_seen_for_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_hashing_ends_when_its_time_is_up_and_says_so(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(8 << 30)
    began = time.monotonic()
    seen = inspect_artifact(tmp_path, "huge", stop_at=began + 0.05)
    assert time.monotonic() - began < allowed(2)
    assert isinstance(seen, FileInfo)
    assert (seen.size, seen.is_whole) == (8 << 30, False)


def test_an_absolute_path_inside_the_root_is_made_relative(tmp_path: Path) -> None:
    assert relative_path(tmp_path, tmp_path / "a" / "b.md") == "a/b.md"
    assert relative_path(tmp_path, "a/b.md") == "a/b.md"
    assert relative_path(tmp_path, "/etc/passwd") == "/etc/passwd"
