"""The worker on disks that are not as one thinks: mounts, access lists, changing files, rules on what is in a folder (issue 4, item 2)."""

import os
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remit import Remit
from remit.agents.builtin.worker import files
from remit.system.beneath import Root
from remit.system.edits import replace_file

_ACCESS_LIST = "system.posix_acl_access"
_NOBODY = 0xFFFFFFFF


@pytest.fixture
async def remit(tmp_path: Path) -> AsyncIterator[Remit]:
    async with Remit.open(tmp_path) as opened:
        yield opened


def access_list(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_access_lists_and_attributes_are_kept_and_nobody_gains_anything(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    path.write_text("old")
    # Its owner and user 1234 may write, its group nothing: yet the mode of such a file reads rw-rw----.
    granted = access_list((1, 6, _NOBODY), (2, 6, 1234), (4, 0, _NOBODY), (16, 6, _NOBODY), (32, 0, _NOBODY))
    try:
        os.setxattr(path, _ACCESS_LIST, granted)
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("this disk knows no access lists")
    with Root(tmp_path) as root, root.place("shared") as place:
        replace_file(place, b"new")
    assert path.read_text() == "new"
    assert os.getxattr(path, _ACCESS_LIST) == granted
    assert os.getxattr(path, "user.note") == b"kept"


def test_what_a_folder_hands_on_to_new_files_is_not_given_to_one_that_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "own"
    path.write_text("old")
    path.chmod(0o640)
    handed_on = access_list((1, 7, _NOBODY), (2, 7, 1234), (4, 7, _NOBODY), (16, 7, _NOBODY), (32, 0, _NOBODY))
    try:
        os.setxattr(tmp_path, "system.posix_acl_default", handed_on)
    except OSError:
        pytest.skip("this disk knows no access lists")
    with Root(tmp_path) as root, root.place("own") as place:
        replace_file(place, b"new")
    assert _ACCESS_LIST not in os.listxattr(path)
    assert path.stat().st_mode & 0o777 == 0o640


_DELETE = """
import asyncio, sys
from remit import Remit
async def main():
    async with Remit.open(sys.argv[1]) as remit:
        for path in ("tree", "tree/mounted"):
            done = await remit.delegate("worker.delete_file", path=path, recursive=True)
            print(done.status, done.errors[0].message)
asyncio.run(main())
"""


def test_what_is_mounted_in_a_folder_is_not_deleted_with_it(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "tree" / "mounted").mkdir(parents=True)
    (root / "tree" / "own").write_text("x")
    outside.mkdir()
    (outside / "precious").write_text("x")
    script = 'mount --bind "$1" "$2/tree/mounted" || exit 77; exec "$3" -c "$4" "$2"'
    try:
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "-", outside, root, sys.executable, _DELETE],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("nothing can be mounted here")
    first, second = done.stdout.splitlines()
    assert first == "partial 1 entry could not be deleted: tree/mounted: something else is mounted there"
    assert second == "failed tree/mounted is where something else is mounted."
    assert (outside / "precious").exists()
    assert not (root / "tree" / "own").exists()


async def test_a_folder_is_no_way_round_a_rule_on_what_is_in_it(remit: Remit, tmp_path: Path) -> None:
    """Deny beats allow (issue 4, item 7): nothing is deleted where something in it must not be."""
    (tmp_path / "app" / "deep").mkdir(parents=True)
    (tmp_path / "app" / "deep" / ".env").write_text("KEY=x")
    (tmp_path / "app" / "a").write_text("x")
    done = await remit.delegate("worker.delete_file", path="app", recursive=True)
    assert done.errors[0].code == "POLICY_DENIED"
    assert done.errors[0].message.startswith("app holds app/deep/.env, so nothing was deleted.")
    assert (tmp_path / "app" / "a").exists()


async def test_a_file_that_is_rewritten_all_the_time_can_be_read(remit: Remit, tmp_path: Path) -> None:
    path = tmp_path / "flicker"
    path.write_text("é")
    is_over = threading.Event()

    def flicker() -> None:
        while not is_over.is_set():
            path.write_bytes("é".encode() * 100)

    thread = threading.Thread(target=flicker)
    thread.start()
    try:
        for _ in range(100):
            done = await remit.delegate("worker.read_file", path="flicker", limit=1)
            assert done.ok, done.errors
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("is_there", [True, False], ids=["ripgrep", "python"])
async def test_a_file_that_is_no_text_is_not_said_to_hold_nothing(
    remit: Remit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if not is_there:
        monkeypatch.setattr(files, "find_ripgrep", lambda: None)
    (tmp_path / "image").write_bytes(b"hit\n\0")
    os.truncate(tmp_path / "image", 1 << 40)
    done = await remit.delegate("worker.search_files", path="image", pattern="hit", timeout=20)
    assert "It is not text" in done.summary
    assert done.data["filesSearched"] == 0


async def test_what_a_glob_leaves_out_takes_no_room_from_what_it_lets_in(remit: Remit, tmp_path: Path) -> None:
    (tmp_path / "noise").mkdir()
    for number in range(20):
        (tmp_path / "noise" / f"{number}.[x]").write_text(("needle " + "z" * 500 + "\n") * 500)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.[x]").write_text("needle\n")
    done = await remit.delegate("worker.search_files", pattern="needle", glob="src/*.[[]x]", max_results=1)
    assert [one["path"] for one in done.data["matches"]] == ["src/a.[x]"]
    assert done.data["truncated"] is False
