"""Files beneath a root: no path and no link leads out of it."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remit import Refused, RemitError
from remit.system.beneath import Root
from remit.system.edits import DEEPEST, TEMPORARY, remove_one, remove_tree, replace_file

Open = Callable[[], Root]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A root with files and links, beside a folder that must never be reached."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    root = tmp_path / "root"
    (root / "folder" / "deep").mkdir(parents=True)
    (root / "plain.txt").write_text("plain")
    (root / "folder" / "inner.txt").write_text("inner")
    for name, target in {
        "to_plain": "plain.txt",
        "to_folder": "folder",
        "folder/up": "../plain.txt",
        "folder/deep/round": "../../to_folder/deep/../inner.txt",
        "absolute": str(root / "folder"),
        "out": "../outside/secret.txt",
        "out_absolute": str(tmp_path / "outside" / "secret.txt"),
        "out_folder": str(tmp_path / "outside"),
        "out_and_back": "../root/plain.txt",
        "to_out": "out",
        "loop": "loop",
        "dangling": "folder/new.txt",
        "dangling_out": "../outside/new.txt",
        "to_root": ".",
        "magic": "/proc/self/root/etc/passwd",
    }.items():
        (root / name).symlink_to(target)
    return root


@pytest.fixture
def open_root(project: Path) -> Iterator[Open]:
    before = set(os.listdir("/proc/self/fd"))
    yield lambda: Root(project)
    assert set(os.listdir("/proc/self/fd")) <= before, "a descriptor was left open"


def read(open_root: Open, path: str) -> str:
    with open_root() as root, root.place(path) as place:
        descriptor = place.open_file()
        with os.fdopen(descriptor) as file:
            return file.read()


def write(open_root: Open, path: str, data: bytes) -> bool:
    with open_root() as root, root.place(path) as place:
        return replace_file(place, data)


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt", "folder/../../outside/secret.txt", "folder/..", "..", "/etc/passwd", "//etc/passwd", "out", "to_out",
        "out_absolute", "out_folder/secret.txt", "to_folder/../plain.txt", "magic", "dangling_out", "folder/../plain.txt",
    ],
)  # fmt: skip
def test_path_out_of_the_root_or_with_dot_dot_is_refused(open_root: Open, path: str) -> None:
    with pytest.raises(Refused) as refused:
        read(open_root, path)
    assert refused.value.code == "POLICY_DENIED"
    with pytest.raises(Refused):
        write(open_root, path, b"x")


def test_special_files_are_refused_without_blocking(open_root: Open, project: Path) -> None:
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(project, os.O_RDONLY)
        try:
            listening.bind(f"/proc/self/fd/{here}/sock")
        finally:
            os.close(here)
    names = ["pipe", "sock"]
    if os.geteuid() == 0:
        os.mknod(project / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        names.append("device")
    for name in names:
        with pytest.raises(Refused, match="not a file"):
            read(open_root, name)
        with pytest.raises(Refused, match="not a file"):
            write(open_root, name, b"x")


def test_file_is_replaced_atomically_with_its_permissions(open_root: Open, project: Path) -> None:
    file = project / "plain.txt"
    file.chmod(0o4750)
    before = file.stat().st_ino
    assert write(open_root, "plain.txt", b"new") is False
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o750, "permissions are kept, setuid is not"
    assert file.stat().st_ino != before
    assert not [name for name in os.listdir(project) if TEMPORARY.match(name)]


@pytest.mark.parametrize(("path", "real"), [("to_plain", "plain.txt"), ("dangling", "folder/new.txt"), ("absolute/a.txt", "folder/a.txt")])
def test_writing_through_a_link_inside_writes_its_target(open_root: Open, project: Path, path: str, real: str) -> None:
    write(open_root, path, b"through")
    assert (project / real).read_bytes() == b"through"
    assert not (project / real).is_symlink()
    assert (project / path.partition("/")[0]).is_symlink()


def test_hard_link_to_a_file_outside_is_replaced_not_written(open_root: Open, project: Path) -> None:
    os.link(project.parent / "outside" / "secret.txt", project / "hard")
    write(open_root, "hard", b"changed")
    assert (project.parent / "outside" / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize("depth", [DEEPEST - 2, DEEPEST * 2])
def test_tree_is_removed_with_its_links_down_to_a_hundred_levels(open_root: Open, project: Path, depth: int) -> None:
    folder = os.open(project / "folder" / "deep", os.O_RDONLY)
    for number in range(depth):
        os.mkdir("down", dir_fd=folder)
        os.symlink(project.parent / "outside", f"link{number}", dir_fd=folder)
        deeper = os.open("down", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    with open_root() as root, root.place("folder", follow=False) as place:
        removed = remove_tree(place, lambda: False)
    assert (removed.left == 0) == (depth < DEEPEST) == (not (project / "folder").exists()), removed.faults
    assert (project.parent / "outside" / "secret.txt").exists()


SWAP = """
import ctypes, os, sys
rename = ctypes.CDLL(None).renameat2
one, other = (os.fsencode(path) for path in sys.argv[1:3])
print(rename(-100, one, -100, other, 2), flush=True)
while os.getppid() == int(sys.argv[3]):
    for _ in range(1000):
        rename(-100, one, -100, other, 2)
"""


@contextlib.contextmanager
def swap_continuously(one: Path, other: Path) -> Iterator[None]:
    """Another process exchanges the two names in a tight loop."""
    command = [sys.executable, "-c", SWAP, str(one), str(other), str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"0":
            pytest.skip("this file system cannot exchange two names")
        try:
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("what", ["reading", "writing", "removing"])
def test_nothing_outside_is_reached_while_a_folder_is_swapped_for_a_link(open_root: Open, project: Path, what: str) -> None:
    outside, swapped = project.parent / "outside", project / "swapped"
    (outside / "inner.txt").write_text("secret")
    (project / "aside").symlink_to(outside)
    swapped.mkdir()
    (swapped / "inner.txt").write_text("inner")
    seen = set()
    with swap_continuously(swapped, project / "aside"):
        stop_at = time.monotonic() + 0.5
        while time.monotonic() < stop_at:
            with contextlib.suppress(RemitError):
                if what == "reading":
                    seen.add(read(open_root, "swapped/inner.txt"))
                elif what == "writing":
                    write(open_root, f"swapped/new{time.monotonic_ns() % 100}.txt", b"x")
                else:
                    with open_root() as root, root.place("swapped/inner.txt", follow=False) as place:
                        remove_one(place)
                    write(open_root, "swapped/inner.txt", b"inner")
    assert seen <= {"inner"}
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret.txt": "secret", "inner.txt": "secret"}
