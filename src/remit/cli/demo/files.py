"""The files of a folder, found within bounds and sorted into portions of work. Blocking; knows nothing of delegations."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from remit.flow.search import Bounds, Found, search

WALK_SECONDS = 3.0
WALK_ENTRIES = 100_000
MOST_FILES = 3_000
"""So many are read; a larger folder is sampled and the report says so."""
MOST_GROUPS = 7
MOST_LANGUAGES = 3
MOST_PIECES = 4
SMALL_PORTION = 12

_NAMES: dict[str, str] = {
    "Python": "py pyi ipynb", "JavaScript": "js mjs cjs jsx", "TypeScript": "ts tsx", "C": "c h", "C++": "cc cpp cxx hpp hh",
    "Rust": "rs", "Go": "go", "Java": "java", "Kotlin": "kt kts", "C#": "cs", "Ruby": "rb", "PHP": "php", "Swift": "swift",
    "Shell": "sh bash zsh fish", "SQL": "sql", "Lean": "lean", "Haskell": "hs", "HTML": "html htm", "CSS": "css scss less",
    "Markdown": "md markdown", "Text": "txt rst adoc tex", "JSON": "json jsonl", "YAML": "yaml yml", "TOML": "toml", "XML": "xml svg",
    "Config": "ini cfg conf env lock", "Data": "csv tsv parquet db sqlite", "Image": "png jpg jpeg gif webp ico", "Log": "log",
}  # fmt: skip
LANGUAGE_OF = {suffix: name for name, suffixes in _NAMES.items() for suffix in suffixes.split()}
OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finds:
    files: list[Found]
    """At most `MOST_FILES`, nearest to the top first."""
    seen: int
    """How many there were in all, as far as the walk went."""
    is_whole: bool
    """Whether the walk saw everything."""


def find_files(folder: Path) -> Finds:
    """Never longer than a few seconds, however large the folder is."""
    result = search(folder, "", Bounds(stop_at=time.monotonic() + WALK_SECONDS, max_entries=WALK_ENTRIES))
    files = sorted(result.found, key=lambda found: (found.path.count("/"), found.path))
    return Finds(files=files[:MOST_FILES], seen=len(files), is_whole=not result.stopped_early)


def language(path: str) -> str:
    return LANGUAGE_OF.get(PurePosixPath(path).suffix.lstrip(".").lower(), OTHER)


def groups_of(files: Sequence[Found]) -> dict[str, list[str]]:
    """Files by top-level folder, or by language where there is only one; the smallest groups together as one."""
    paths = [found.path for found in files]
    shared = _shared_folder(paths)
    by_folder: dict[str, list[str]] = {}
    for path in paths:
        top, slash, _ = path.removeprefix(shared).partition("/")
        by_folder.setdefault(f"{shared}{top}/" if slash else shared or "top level", []).append(path)
    groups = by_folder if len(by_folder) > 1 else by_language(paths)
    largest = [name for name, _ in Counter({name: len(paths) for name, paths in groups.items()}).most_common(MOST_GROUPS)]
    kept = {name: groups[name] for name in largest}
    rest = [path for name, paths in groups.items() if name not in kept for path in paths]
    return {**kept, "the rest": rest} if rest else kept


def _shared_folder(paths: Sequence[str]) -> str:
    """The folder that holds them all, `a/b/`; empty when that is the top."""
    folders = {path.rpartition("/")[0] for path in paths}
    shared = os.path.commonpath(folders) if folders else ""
    return f"{shared}/" if shared else ""


def by_language(paths: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(language(path), []).append(path)
    return found


def portions_of(paths: Sequence[str]) -> dict[str, list[str]]:
    """A group cut into portions that can be measured at once: by language, small ones together, large ones in pieces."""
    portions: dict[str, list[str]] = {}
    small: dict[str, list[str]] = {}
    for name, listed in sorted(by_language(paths).items(), key=lambda item: -len(item[1])):
        if len(portions) < MOST_LANGUAGES and len(listed) >= SMALL_PORTION:
            portions |= _pieces(name, listed)
        else:
            small[name] = listed
    if small:
        portions[next(iter(small)) if len(small) == 1 else "mixed"] = [path for listed in small.values() for path in listed]
    return portions


def _pieces(name: str, paths: list[str]) -> dict[str, list[str]]:
    number = min(MOST_PIECES, max(1, len(paths) // SMALL_PORTION // 2))
    return {name: paths} if number == 1 else {f"{name} {piece + 1}/{number}": paths[piece::number] for piece in range(number)}
