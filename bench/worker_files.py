"""read_file and search_files: overhead of the worker over reading a file directly, and over ripgrep on a tree of many files."""

import asyncio
import random
import subprocess
import tempfile
from pathlib import Path

from bench.figures import Figure, median, microseconds, milliseconds, percentile
from bench.sizes import Sizes
from bench.speed import timed_sequence
from remit import Remit
from remit.builtin.worker.search import find_ripgrep

READ_TARGET_SECONDS = 0.001
SEARCH_TARGET = 1.3
NEEDLE = "needle in the hay"
_ONE_IN = 400
"""One in this many files contains the search text."""
_PER_FOLDER = 100
_WARM = 20


async def measure_reading(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    direct: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        file = _written(Path(folder))

        async def read_directly() -> None:
            assert _held(file)

        async with Remit.open(folder) as remit:

            async def read_by_worker() -> None:
                done = await remit.delegate("worker.read_file", path="notes.txt")
                assert done.ok, done  # a refusal would be quick, and would look like speed

            await timed_sequence(read_by_worker, _WARM)
            for _ in range(sizes.rounds):
                direct.append(percentile(await timed_sequence(read_directly, sizes.file_reads), 0.5))
                ours.append(percentile(await timed_sequence(read_by_worker, sizes.file_reads), 0.5))
    added = median([one - floor for one, floor in zip(ours, direct, strict=True)])
    return [
        Figure(section="read_file", what="floor: the file read directly, p50", measured=microseconds(median(direct))),
        Figure(section="read_file", what="remit, worker.read_file, p50", measured=microseconds(median(ours))),
        Figure(
            section="read_file",
            what="added by remit",
            measured=microseconds(added),
            target=f"≤ {READ_TARGET_SECONDS * 1e3:g} ms",
            is_met=added <= READ_TARGET_SECONDS,
        ),
    ]


async def measure_searching(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    program = find_ripgrep()
    rounds: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        await asyncio.to_thread(_plant, Path(folder), sizes.tree_files)

        async def search_directly() -> None:
            command = [program, "--no-config", "--hidden", "--line-number", "--column", "--fixed-strings", "--glob=!.remit", NEEDLE, "./"]
            done = await asyncio.to_thread(subprocess.run, command, cwd=folder, capture_output=True, check=True)
            assert done.stdout

        async with Remit.open(folder) as remit:

            async def search_by_worker() -> None:
                done = await remit.delegate("worker.search_files", path=".", pattern=NEEDLE)
                assert done.ok, done
                assert done.data["matchCount"] == -(-sizes.tree_files // _ONE_IN), done.summary

            for one in (search_directly, search_by_worker):
                await timed_sequence(one, 2)
            for _ in range(sizes.rounds):
                floor = await timed_sequence(search_directly, sizes.searches)
                ours = await timed_sequence(search_by_worker, sizes.searches)
                rounds.append((median(floor), median(ours)))
    ratio = median([ours / floor for floor, ours in rounds])
    what = f"{sizes.tree_files:,} files"
    return [
        Figure(section="search_files", what=f"floor: ripgrep alone, {what}", measured=milliseconds(median([floor for floor, _ in rounds]))),
        Figure(
            section="search_files", what=f"remit, worker.search_files, {what}", measured=milliseconds(median([ours for _, ours in rounds]))
        ),
        Figure(
            section="search_files",
            what="remit against ripgrep",
            measured=f"{ratio:.2f} times",
            target=f"≤ {SEARCH_TARGET:g} times",
            is_met=ratio <= SEARCH_TARGET,
        ),
    ]


def _written(folder: Path) -> Path:
    file = folder / "notes.txt"
    file.write_text("".join(f"line {number}: some words that are worth reading\n" for number in range(100)))
    return file


def _held(file: Path) -> str:
    return file.read_text()


def _plant(root: Path, count: int) -> None:
    """Write files of the size of source code, the same each time."""
    chance = random.Random(20_000)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 10))) for _ in range(3000)]
    (root / ".gitignore").write_text("*.log\n__pycache__/\n/dist\nnode_modules\n*.py[cod]\n")
    for number in range(count):
        folder = root / f"part{number // (_PER_FOLDER * 20)}" / f"folder{number // _PER_FOLDER}"
        if number % _PER_FOLDER == 0:
            folder.mkdir(parents=True)
        lines = [" ".join(chance.choices(words, k=8)) for _ in range(chance.randint(5, 80))]
        if number % _ONE_IN == 0:
            lines[len(lines) // 2] += f" {NEEDLE}"
        (folder / f"file{number}.py").write_text("\n".join(lines) + "\n")
