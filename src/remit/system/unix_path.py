"""A name that the kernel takes for a Unix socket at a path of any length. For the gRPC door and its clients.

The kernel takes 107 bytes. A path that is longer is reached through an open descriptor of its folder, `/proc/self/fd/N/name`: a name that
holds in this process, as long as this is open. `switchboard.address` does the same for sockets that it opens itself.
"""

import os
from pathlib import Path
from types import TracebackType

LONGEST_BYTES = 107


class UnixPath:
    __slots__ = ("_folder", "name")

    def __init__(self, path: Path) -> None:
        """Raises `OSError` where its folder is needed and is not there."""
        self._folder: int | None = None
        self.name = str(path)
        if len(os.fsencode(path)) > LONGEST_BYTES:
            self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.name = f"/proc/self/fd/{self._folder}/{path.name}"

    def close(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def __enter__(self) -> "UnixPath":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def as_target(name: str) -> str:
    """As gRPC is told it: it reads a percent sign as the beginning of an escape, and would listen or knock elsewhere."""
    return f"unix:{name.replace('%', '%25')}"
