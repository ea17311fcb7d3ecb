"""What the processes of a sandbox use together, measured from outside: memory, threads, sockets and disk.

Memory counts what is swapped out, shared anonymous memory that is not mapped, page tables, and the capacity of sockets. A control group,
if there is one, limits memory in the kernel as well."""

import os
from pathlib import Path

from remit.system.processes import descendants
from remit.system.sandbox.recipes import Limits

DISK_CHECKS = 4
"""Folders are scanned less often than processes: it costs more."""
BEYOND_COUNTING = 1 << 62
"""More bytes than any limit."""
DEEPEST_COUNTED = 100
"""Deeper folders only hide something; each level takes an open file."""
MAPS_BYTES = 16 << 20
"""For all mapping lists together; one has about 10 KB."""
LEAST_SHARED_BYTES = 8 << 20
"""Minimum that shared memory counts: most of it may have been unmapped between two checks, and is still in use."""
RESERVE_BYTES = 1 << 30
_HELD = (b"VmRSS:", b"VmSwap:", b"VmPTE:", b"HugetlbPages:")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UsageMonitor:
    """Compares the descendants of a process with limits. `folders`: where their files count as disk; without any, deleted files that are
    still open count as memory, and the rest is not limited."""

    def __init__(self, pid: int, limits: Limits, folders: tuple[Path, ...] = ()) -> None:
        self._pid = pid
        self._limits = limits
        self._folders = folders
        self._shared: dict[bytes, int] = {}
        self._checks = 0
        self._reserve = min(RESERVE_BYTES, *(_free_bytes(folder) // 4 for folder in folders)) if folders else 0
        self.hits: set[str] = set()
        self.peak_bytes = 0

    def exceeded(self) -> str:
        """The limit that they have exceeded together, or empty. Blocks for some milliseconds."""
        processes = descendants(self._pid)
        held, mapped, threads = (sum(column) for column in zip(*map(memory_of, processes), strict=True)) if processes else (0, 0, 0)
        if threads >= self._limits.processes:
            self.hits.add("processes")
        limit, shared = self._limits.memory_bytes, self._shared_bytes(processes)
        if not self._folders:
            shared += _unnamed_bytes(processes)
        used = held + max(0, shared - mapped)
        if used > limit:  # shared memory is counted once for each: check in detail
            used = sum(map(proportional, processes)) + shared
        used += self._socket_bytes(processes)
        self.peak_bytes = max(self.peak_bytes, used)
        if used > limit:
            return "memory"
        if threads > self._limits.processes + 2:  # root's processes are not limited by the kernel
            return "processes"
        self._checks += 1
        return "disk" if self._folders and self._checks % DISK_CHECKS == 0 and self._is_disk_full(processes) else ""

    def _is_disk_full(self, processes: list[int]) -> bool:
        if min(map(_free_bytes, self._folders)) < self._reserve:  # an open file may have no name
            return True
        found = [_in_folder(str(folder), None, 0) for folder in self._folders]
        used, made = (sum(column) for column in zip(*found, strict=True))
        return bool(used + _unnamed_bytes(processes) > self._limits.disk_bytes or made > self._limits.files)

    def _shared_bytes(self, processes: list[int]) -> int:
        before = self._shared
        self._shared = {inode: max(size, before.get(inode, LEAST_SHARED_BYTES)) for inode, size in _shared_memory(processes).items()}
        return sum(self._shared.values())

    def _socket_bytes(self, processes: list[int]) -> int:
        """Maximum content of their sockets. Counted only if that is too much: an empty socket uses no memory."""
        each, limit = _socket_capacity(), self._limits.memory_bytes
        total = sum(len(_names_in(f"/proc/{pid}/fd")) for pid in processes)
        used = each * _count_sockets(processes) if total * each > limit else 0
        return used if used > limit else 0


def memory_of(pid: int) -> tuple[int, int, int]:
    """Bytes in memory, swapped out, or used by the kernel for page tables; the shared part; threads."""
    held = mapped = threads = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(_HELD):
                    held += int(line.split()[1]) * 1024
                elif line.startswith(b"RssShmem:"):
                    mapped = int(line.split()[1]) * 1024
                elif line.startswith(b"Threads:"):
                    threads = int(line.split()[1])
    except OSError:  # it has ended
        return 0, 0, 0
    return held, mapped, threads


def proportional(pid: int) -> int:
    """The same bytes, with shared pages divided among processes, without shared memory (see `_shared_memory`)."""
    shared = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Rss:"):
                    shared += int(line.split()[1]) * 1024
                elif line.startswith((b"Pss:", b"Pss_Shmem:")):
                    shared += int(line.split()[1]) * (1024 if line.startswith(b"Pss_") else -1024)
    except OSError:
        pass
    return max(0, memory_of(pid)[0] - shared)


def _shared_memory(processes: list[int]) -> dict[bytes, int]:
    """Anonymous shared memory by inode: its mapped size. Written pages that are not mapped stay in use."""
    found: dict[bytes, int] = {}
    left = MAPS_BYTES
    for pid in processes:
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                text = file.read(left)
        except OSError:
            continue
        left -= len(text)
        if left <= 0:  # so many mappings only prevent the check
            return {b"": BEYOND_COUNTING}
        for line in text.splitlines() if b"/dev/zero (deleted)\n" in text else ():
            if line.endswith(b"/dev/zero (deleted)"):
                ends, _, offset, _, inode, _ = line.split(maxsplit=5)
                low, high = (int(end, 16) for end in ends.split(b"-"))
                found[inode] = max(found.get(inode, 0), int(offset, 16) + high - low)
    return found


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _count_sockets(processes: list[int]) -> int:
    found = set()
    for pid in processes:
        for number in _names_in(f"/proc/{pid}/fd"):
            try:
                found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
            except OSError:
                continue
    return sum(name.startswith("socket:") for name in found)


def _socket_capacity() -> int:
    """Of one socket: it accepts one more message while it is not full."""
    try:
        return 2 * int(Path("/proc/sys/net/core/wmem_default").read_text())
    except (OSError, ValueError):
        return 2 * 212_992


def _unnamed_bytes(processes: list[int]) -> int:
    """Bytes in files that were deleted and are still open."""
    found: dict[tuple[int, int], int] = {}
    for pid in processes:
        for number in _names_in(f"/proc/{pid}/fd"):
            try:
                about = os.stat(f"/proc/{pid}/fd/{number}")
            except OSError:
                continue
            if about.st_nlink == 0 and about.st_mode & 0o170000 == 0o100000:
                found[about.st_dev, about.st_ino] = about.st_blocks * 512
    return sum(found.values())


def _in_folder(name: str, above: int | None, depth: int) -> tuple[int, int]:
    """Bytes and files. By open folders, never by paths, which can be redirected meanwhile or be too long. What cannot be counted is too
    much."""
    used = made = 0
    try:
        opened = os.open(name, _FOLDER, dir_fd=above)
    except PermissionError:
        return BEYOND_COUNTING, 0
    if depth > DEEPEST_COUNTED:
        os.close(opened)
        return BEYOND_COUNTING, 0
    try:
        for entry in list(os.scandir(opened)):
            made += 1
            try:
                used += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    found = _in_folder(entry.name, opened, depth + 1)
                    used, made = used + found[0], made + found[1]
            except (FileNotFoundError, NotADirectoryError):
                continue  # it is gone meanwhile
    except OSError:
        return BEYOND_COUNTING, made
    finally:
        os.close(opened)
    return used, made


def _free_bytes(folder: Path) -> int:
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize
