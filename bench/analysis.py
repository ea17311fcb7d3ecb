"""analysis: cost of `coder.analyze_code` compared with parsing alone, on a generated tree of small files.

The floor is tree-sitter in one process: it reads and parses each file without queries. The agent lists, reads, queries, resolves, writes
report, chart and data, and uses all cores. Both alternate in the same run. The agent's process and its messages are not counted, since
they cost the same for any agent (see `mcp` and W1).
"""

import asyncio
import importlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.figures import Figure, median, milliseconds
from bench.sizes import Sizes
from remit.builtin.coder.analysis.survey import analyse

RATIO = 5.0
"""On one core a full analysis costs about three times the parsing; with more cores less."""
_FOLDER = 50
_PYTHON = '''"""Module {n}: it counts things."""
import os
from app.p{other} import m{inner}


class Thing{n}:
    def __init__(self, a):
        self.a = a

    def run(self):
        return [x for x in self.a if x]
'''
_FUNCTION = '''

def function_{k}(value, other=None):
    """Do a thing."""
    total = 0
    for item in value:
        if item > {k} and other is not None:
            total += item
        elif item < 0 or item == 7:
            total -= 1
        else:
            try:
                total += int(item)
            except ValueError:
                total = 0  # TODO: say so
    return total if total else None
'''


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    return await asyncio.to_thread(_measure, sizes.analysed, min(sizes.rounds, 5))


def _measure(count: int, rounds: int) -> list[Figure]:
    floors, runs = [], []
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as place:
        tree = Path(place) / "tree"
        grow(tree, count)
        for _ in range(rounds):
            floors.append(_timed(lambda: _parse_all(tree)))
            runs.append(_timed(lambda: _analyse(tree, Path(place))))
    ratio = median([run / floor for run, floor in zip(runs, floors, strict=True)])
    return [
        Figure(section="analysis", what=f"floor: {count:,} files parsed in one process", measured=milliseconds(median(floors))),
        Figure(section="analysis", what="remit", measured=milliseconds(median(runs))),
        Figure(section="analysis", what="remit, times the floor", measured=f"{ratio:.2f}", target=f"≤ {RATIO:g}", is_met=ratio <= RATIO),
    ]


def grow(tree: Path, count: int) -> None:
    """Write Python modules of about 75 lines, in folders of fifty, that import one another."""
    for number in range(count):
        folder = tree / "src" / "app" / f"p{number // _FOLDER}"
        if number % _FOLDER == 0:
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text("")
        text = _PYTHON.format(n=number, other=(number * 7) % max(1, count // _FOLDER), inner=number % _FOLDER)
        (folder / f"m{number % _FOLDER}.py").write_text(text + "".join(_FUNCTION.format(k=k) for k in range(4)))
    (tree / "src" / "app" / "__init__.py").write_text("")


def _parse_all(tree: Path) -> None:
    tree_sitter, grammar = importlib.import_module("tree_sitter"), importlib.import_module("tree_sitter_python")
    parser = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    for path in tree.rglob("*.py"):
        parser.parse(path.read_bytes())


def _analyse(tree: Path, out: Path) -> None:
    done = analyse(tree, out)
    assert done["status"] == "completed", "an incomplete analysis would look fast"


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
