"""A control group (version 2) for one run: the kernel's memory limit, including shared memory, socket buffers and page tables.

Created if this process may create groups beside its own: as root, in a service or a terminal with delegation. Otherwise only the keeper's
count limits it."""

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    folder: Path

    def open(self) -> int:
        """A process that writes `0` here joins the group: checked against this process's rights, not its own."""
        return os.open(self.folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def was_exceeded(self) -> bool:
        """Whether the kernel killed it for lack of memory."""
        try:
            counts = dict(line.split() for line in (self.folder / "memory.events").read_text().splitlines())
            return int(counts.get("oom_kill", 0)) > 0
        except (OSError, ValueError):
            return False

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # one of its processes is not gone yet: an empty group stays
            self.folder.rmdir()


def make_group(memory_bytes: int, *, mount: Path = MOUNT) -> ControlGroup | None:
    """Below this process's own group if it is the root, else below the one above, where a memory limit can be set."""
    try:
        own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    folder = mount / own.lstrip("/")
    for parent in (folder, folder.parent) if folder != mount else (folder,):
        group = ControlGroup(folder=parent / f"remit-run-{secrets.token_hex(8)}")
        try:
            if "memory" not in (parent / "cgroup.subtree_control").read_text().split():
                continue
            group.folder.mkdir()
            (group.folder / "memory.max").write_text(str(memory_bytes))
            for name, value in {"memory.swap.max": "0", "memory.oom.group": "1"}.items():
                with contextlib.suppress(OSError):  # a machine without swap, or an older kernel
                    (group.folder / name).write_text(value)
            return group
        except OSError:
            group.remove()
    return None
