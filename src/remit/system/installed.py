"""What installed packages offer under a name of ours, read again only when something may have been installed meanwhile.

To read the lists of all packages takes longer than everything else that opening a project does. Not: loading what they offer.
"""

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["offered"]


def offered(group: str) -> tuple["EntryPoint", ...]:
    return _read(group, tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=16)
def _read(group: str, places: tuple[tuple[str, int], ...]) -> tuple["EntryPoint", ...]:
    """A package that comes or goes changes the folder it is in."""
    import importlib.metadata

    return tuple(importlib.metadata.entry_points(group=group))


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0
