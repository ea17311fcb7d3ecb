"""What code in the sandbox may use up, and what it is granted beyond the least. Plain values; `run` and `keeper` hold code to them."""

from dataclasses import dataclass
from pathlib import Path

MEBIBYTE = 1 << 20
LIMIT_NAMES = ("time", "memory", "processes", "output", "disk")
"""By these names a limit that was met is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    seconds: float = 30.0
    memory_bytes: int = 512 * MEBIBYTE
    """Of all its processes together; what it keeps in files counts as disk."""
    processes: int = 64
    """Threads count, as they do for the kernel."""
    output_bytes: int = MEBIBYTE
    """Of stdout and stderr together. What goes beyond is dropped; a flood of `FLOOD` times as much ends the code."""
    disk_bytes: int = 256 * MEBIBYTE
    """In the work folder and the folder for temporary files together."""
    files: int = 20_000
    """Files and folders it may make."""
    open_files: int = 256


FLOOD = 16
MOST = Limits(
    seconds=3600.0,
    memory_bytes=16_384 * MEBIBYTE,
    processes=1024,
    output_bytes=64 * MEBIBYTE,
    disk_bytes=8_192 * MEBIBYTE,
    files=200_000,
)
"""More than this is not given to anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    network: bool = False
    read_only: tuple[Path, ...] = ()
    """Files and folders it may read, at their own paths."""
