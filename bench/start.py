"""start: CPU time of new interpreters that import or run remit, compared with the minimum that they must load."""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.figures import Figure, median, milliseconds
from bench.sizes import Sizes

LIBRARY_FLOOR = "import asyncio, sqlite3; from pydantic import BaseModel"
COMMANDS: dict[str, list[str]] = {
    "floor: asyncio, sqlite3, pydantic": ["-c", LIBRARY_FLOOR],
    "from remit import Remit": ["-c", "from remit import Remit"],
    "floor: the same with typer and rich": ["-c", f"{LIBRARY_FLOOR}; import typer, rich.console"],
    "remit delegate worker.list_files": ["-m", "remit", "delegate", "worker.list_files", "--json"],
    "remit --version": ["-m", "remit", "--version"],
}
LIBRARY_RATIO, DELEGATE_RATIO, VERSION_SECONDS = 1.8, 2.0, 0.1


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        for arguments in COMMANDS.values():
            cpu_seconds(arguments, folder)  # compile modules once
        rounds = [[cpu_seconds(arguments, folder) for arguments in COMMANDS.values()] for _ in range(sizes.rounds)]
    figures = [
        Figure(section="start", what=f"{what}, CPU", measured=milliseconds(median([row[position] for row in rounds])))
        for position, what in enumerate(COMMANDS)
    ]
    library = median([row[1] / row[0] for row in rounds])
    delegated = median([row[3] / row[2] for row in rounds])
    version = median([row[4] for row in rounds])
    return [
        *figures[:4],
        Figure(
            section="start", what="remit --version, CPU", measured=milliseconds(version),
            target=f"≤ {VERSION_SECONDS * 1e3:g} ms", is_met=version <= VERSION_SECONDS,
        ),
        _ratio("library import, of its floor", library, LIBRARY_RATIO),
        _ratio("remit delegate, of its floor", delegated, DELEGATE_RATIO),
    ]  # fmt: skip


def _ratio(what: str, measured: float, most: float) -> Figure:
    return Figure(section="start", what=what, measured=f"{measured:.2f} times", target=f"≤ {most:g} times", is_met=measured <= most)


def cpu_seconds(arguments: list[str], folder: str | Path) -> float:
    """CPU time of one interpreter and its children. Compiled modules are kept, as in an installed remit."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
