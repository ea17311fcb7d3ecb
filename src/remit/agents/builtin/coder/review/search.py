"""Where a name is used in the workspace: by ripgrep where it is here, else by reading files. Bounded in files, bytes and time."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from remit.agents.builtin.coder.review.languages import CODE, is_generated, language
from remit.agents.builtin.coder.review.linting import find_tool
from remit.agents.builtin.coder.review.tree import read_below

FILES_LIMIT = 20_000
HITS_LIMIT = 2_000
_SKIPPED = frozenset(
    {".git", ".remit", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache", "dist", "build", "target"}
)


class Hit(NamedTuple):
    path: str
    line: int
    text: str


def uses(root: Path, names: list[str], seconds: float) -> list[Hit] | None:
    """Lines of code with one of the names as a word; None where time was up."""
    if not names or seconds < 0.2:
        return [] if not names else None
    tool = find_tool("rg")
    found = _by_ripgrep(tool, root, names, seconds) if tool else None
    return found if found is not None else _by_reading(root, names, seconds)


def _by_ripgrep(tool: str, root: Path, names: list[str], seconds: float) -> list[Hit] | None:
    command = [
        tool,
        "--no-config",
        "--no-messages",
        "-n",
        "-w",
        "-F",
        "-0",
        "--color=never",
        "--no-heading",
        "--max-columns=400",
        "--max-count=200",
        "--max-filesize=1M",
        "--no-follow",
        *(f"-e{name}" for name in names),
        "./",
    ]
    try:
        ran = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if ran.returncode not in (0, 1):
        return None
    hits = []
    for line in ran.stdout[:20_000_000].decode("utf-8", "replace").split("\n"):
        path, _, rest = line.partition("\0")
        number, _, text = rest.partition(":")
        path = path.removeprefix("./")
        if number.isdigit() and _is_code(path):
            hits.append(Hit(path, int(number), text))
    return hits[:HITS_LIMIT]


def _is_code(path: str) -> bool:
    return language(path) in CODE and not is_generated(path)


def _by_reading(root: Path, names: list[str], seconds: float) -> list[Hit] | None:
    stop_at = time.monotonic() + seconds
    wanted = re.compile(r"\b(?:" + "|".join(map(re.escape, names)) + r")\b")
    hits: list[Hit] = []
    for path in code_files(root):
        if time.monotonic() > stop_at:
            return None
        text = read_below(root, path).text or ""
        if wanted.search(text):
            hits += [Hit(path, number, line[:400]) for number, line in enumerate(text.split("\n"), 1) if wanted.search(line)]
        if len(hits) > HITS_LIMIT:
            break
    return hits


def code_files(root: Path) -> Iterator[str]:
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        below = os.path.relpath(folder, root)
        for name in sorted(files):
            path = name if below == "." else f"{below}/{name}"
            count += 1
            if count > FILES_LIMIT:
                return
            if _is_code(path):
                yield path
