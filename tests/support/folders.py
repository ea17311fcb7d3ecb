"""Folders deeper than the stack of a program that descends by recursion."""

import os
from pathlib import Path

LEVELS = 1500


def make_deep(folder: Path) -> str:
    """Below `folder`, which exists, with a file `end` at the bottom; its path in `folder`."""
    path = str(folder)
    for _ in range(LEVELS):
        path = f"{path}/d"
        os.mkdir(path)
    Path(path, "end").write_text("end")
    return os.path.relpath(f"{path}/end", folder)
