"""Files shared by several processes."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remit import Unavailable
from remit.system.files import atomic_write, file_lock, sweep_folders, temporary_folder, write_beside

HOLDER = """
import sys, time
from pathlib import Path
from remit.system.files import file_lock
with file_lock(Path(sys.argv[1]), timeout=5):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def another_process_holding(lock: Path) -> Iterator[subprocess.Popen[str]]:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.kill()
        holder.communicate()


def test_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a real failure in the middle of a write, like a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(Unavailable, match=r"Cannot write .*a: File too large.*nothing was changed"):
            atomic_write(path, b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_waiting_for_a_lock_is_bounded_and_names_the_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with another_process_holding(lock) as holder:
        with pytest.raises(Unavailable, match=f"locked by process {holder.pid}; waited 0.05 s"), file_lock(lock, timeout=0.05):
            pass
        holder.kill()
        with file_lock(lock, timeout=5):
            assert lock.read_text() == str(os.getpid())


def test_folder_replaced_by_a_link_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="scratch"):
        write_beside(tmp_path / "scratch", "answer.txt", b"x")
    assert list((tmp_path / "outside").iterdir()) == []


def test_temporary_folder_of_a_killed_process_is_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    script = (
        "from remit.system.files import temporary_folder\nwith temporary_folder('remit-test-') as path: print(path, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        left = Path(process.stdout.readline().strip())
        sweep_folders(tmp_path, "remit-test-", stale_seconds=0)
        assert left.is_dir(), "in use"
        process.kill()
        process.wait()
    sweep_folders(tmp_path, "remit-test-")
    assert left.is_dir(), "too new to be stale"
    sweep_folders(tmp_path, "remit-test-", stale_seconds=0)
    assert not left.exists()
    with temporary_folder("remit-test-") as path:
        assert path.parent == tmp_path
    assert not path.exists()
