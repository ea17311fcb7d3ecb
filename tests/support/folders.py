"""Folders deeper than the recursion of Python: the removal of temporary folders by pytest would fail."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def dig(folder: Path, levels: int) -> int:
    """Make folders in folders; returns a descriptor of the innermost."""
    place = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=place)
        deeper = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = deeper
    return place


@contextmanager
def removed_at_the_end(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
