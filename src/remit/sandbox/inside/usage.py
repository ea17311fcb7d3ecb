"""Runs inside the sandbox, in the keeper: what processes use, as the kernel tells it, and the killing of one."""

from __future__ import annotations

import os

SIGKILL = 9
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def kill(pid: int) -> None:
    try:
        os.kill(pid, SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def looked_at(pid: int) -> tuple[int, int]:
    """Bytes in memory, and threads."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[21]) * PAGE_BYTES, int(fields[17])
    except (OSError, IndexError):
        return 0, 0


def proportional(pid: int) -> int:
    """Bytes in memory, those that several processes share divided among them."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return looked_at(pid)[0]


def walked(folders: list[str], processes: list[int]) -> tuple[int, int]:
    """Bytes and files in folders, and in files that were deleted and are still open."""
    used = made = 0
    todo = list(folders)
    while todo:
        try:
            for entry in os.scandir(todo.pop()):
                made += 1
                used += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
        except OSError:
            pass
    gone: dict[tuple[int, int], int] = {}
    for pid in processes:
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                about = os.stat(f"/proc/{pid}/fd/{number}")
                if about.st_nlink == 0 and about.st_mode & 0o170000 == 0o100000:
                    gone[about.st_dev, about.st_ino] = about.st_blocks * 512
        except OSError:
            pass
    return used + sum(gone.values()), made


def clear(folder: str) -> None:
    """Remove a folder of the keeper's own with all that is in it, as far as it can be."""
    try:
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                clear(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(folder)
    except (OSError, RecursionError):
        return
