"""Runs inside the sandbox, in the keeper: what processes and folders use, as the kernel tells it, and the end of both."""

from __future__ import annotations

import os

SIGKILL = 9
BEYOND_COUNTING = 1 << 62
"""More bytes than any limit."""
DEEPEST_COUNTED = 100
"""Nobody has folders so deep but to hide something; each level takes an open file of the keeper's."""
_HELD = (b"VmRSS:", b"VmSwap:", b"VmPTE:", b"HugetlbPages:")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def kill(pid: int) -> None:
    try:
        os.kill(pid, SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def looked_at(pid: int) -> tuple[int, int]:
    """Bytes in memory, swapped out, or used by the kernel to find them; and threads."""
    held = threads = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(_HELD):
                    held += int(line.split()[1]) * 1024
                elif line.startswith(b"Threads:"):
                    threads = int(line.split()[1])
    except OSError:  # it has ended
        return 0, 0
    return held, threads


def proportional(pid: int) -> int:
    """The same bytes, those in memory that several processes share divided among them."""
    shared = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Rss:"):
                    shared += int(line.split()[1]) * 1024
                elif line.startswith(b"Pss:"):
                    shared -= int(line.split()[1]) * 1024
    except OSError:
        pass
    return max(0, looked_at(pid)[0] - shared)


def walked(folders: list[str], processes: list[int]) -> tuple[int, int]:
    """Bytes and files in folders, and in files that were deleted and are still open."""
    used = made = 0
    for folder in folders:
        try:
            found = _in_folder(_opened(folder, None), 0)
        except OSError:
            found = BEYOND_COUNTING, 0
        used, made = used + found[0], made + found[1]
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


def _in_folder(folder: int, depth: int) -> tuple[int, int]:
    """By open folders, never by paths: those can be led elsewhere meanwhile, or be too long. `folder` is closed."""
    used = made = 0
    try:
        for entry in list(os.scandir(folder)):
            made += 1
            try:
                used += entry.stat(follow_symlinks=False).st_blocks * 512
                below = _opened(entry.name, folder) if entry.is_dir(follow_symlinks=False) else -1
            except (FileNotFoundError, NotADirectoryError):
                continue  # it is gone meanwhile
            if below >= 0:
                if depth == DEEPEST_COUNTED:
                    os.close(below)
                    return BEYOND_COUNTING, made
                found = _in_folder(below, depth + 1)
                used, made = used + found[0], made + found[1]
    except OSError:  # what cannot be counted is too much
        return BEYOND_COUNTING, made
    finally:
        os.close(folder)
    return used, made


def _opened(name: str, folder: int | None) -> int:
    """A folder that the code may have closed to itself, and so to us: opened for a moment, with its rights as before."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        held = os.open(name, _FOLDER | os.O_PATH, dir_fd=folder)  # this very folder, whatever its name means by now
    try:
        rights = os.fstat(held).st_mode & 0o7777
        os.chmod(f"/proc/self/fd/{held}", 0o700)
        try:
            return os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_DIRECTORY)
        finally:
            os.chmod(f"/proc/self/fd/{held}", rights)
    finally:
        os.close(held)


def clear(folder: str) -> None:
    """Remove a folder with all that is in it, as far as it can be, once nobody is left who changes it."""
    try:
        top = os.open(folder, _FOLDER)
    except OSError:
        return
    moved: list[str] = []
    try:
        _empty(top, top, moved, 0)
        while moved:
            name = moved.pop()
            inside = os.open(name, _FOLDER, dir_fd=top)
            try:
                _empty(inside, top, moved, 0)
            finally:
                os.close(inside)
            os.rmdir(name, dir_fd=top)
        os.rmdir(folder)
    except OSError:
        return
    finally:
        os.close(top)


def _empty(folder: int, top: int, moved: list[str], depth: int) -> None:
    """However deep it is: folders that are deep down are moved up to the top, to be emptied from there."""
    for entry in list(os.scandir(folder)):
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=folder)
            continue
        if os.geteuid() != 0:  # root needs no rights
            held = os.open(entry.name, _FOLDER | os.O_PATH, dir_fd=folder)
            os.chmod(f"/proc/self/fd/{held}", 0o700)
            os.close(held)
        if depth == DEEPEST_COUNTED:
            moved.append(f".{os.stat(entry.name, dir_fd=folder, follow_symlinks=False).st_ino}")
            os.rename(entry.name, moved[-1], src_dir_fd=folder, dst_dir_fd=top)
            continue
        below = os.open(entry.name, _FOLDER, dir_fd=folder)
        try:
            _empty(below, top, moved, depth + 1)
        finally:
            os.close(below)
        os.rmdir(entry.name, dir_fd=folder)


def sealed(data: bytes) -> int:
    """An open file with `data` that nobody can change: what is written to it would be memory of no process."""
    import fcntl

    file = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(os.dup(file), "wb") as writing:
        writing.write(data)
    os.lseek(file, 0, os.SEEK_SET)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return file
