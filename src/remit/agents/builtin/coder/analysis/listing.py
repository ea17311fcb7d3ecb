"""Which files there are: what git knows or would take, else a walk that heeds `.gitignore`. Follows no link; opens nothing.

What is left out by its name (folders of other people's code, files of no text) is counted, so that the report can say so.
"""

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from remit.agents.builtin.coder.analysis.languages import BY_EXTENSION, OTHERS
from remit.core.errors import RemitError
from remit.system.ignoring import Rules, read_rules
from remit.system.listing import Walk
from remit.workspaces.git import Git

FILES_AT_MOST = 1_000_000
PARSED_BYTES = 1_000_000
"""Larger files are counted, not parsed: no person wrote them."""
COUNTED_BYTES = 8_000_000
GIT_SECONDS = 60.0
VENDORED = frozenset(
    {"node_modules", "bower_components", "jspm_packages", "vendor", "third_party", "third-party", "thirdparty", "site-packages",
     "__pycache__", ".venv", "venv", ".tox", ".nox", ".eggs", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".git", ".hg", ".svn",
     ".remit"}
)  # fmt: skip
_NEVER = frozenset({".git", ".hg", ".svn", ".remit", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox", ".nox", ".eggs"})
"""Not code at all, so nobody needs to be told."""
_OTHERS = "other people's code"
_BINARY = frozenset(
    {".png", ".jpg", ".jpeg", ".gif", ".ico", ".webp", ".bmp", ".pdf", ".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".tar", ".jar",
     ".class", ".o", ".a", ".so", ".dll", ".dylib", ".exe", ".pyc", ".pyo", ".woff", ".woff2", ".ttf", ".otf", ".eot", ".mp3", ".mp4",
     ".mov",
     ".wav", ".ogg", ".webm", ".db", ".sqlite", ".sqlite3", ".parquet", ".npy", ".npz", ".pkl", ".bin", ".dat", ".wasm", ".whl"}
)  # fmt: skip
_EXTENSION = re.compile(r"^\.[a-z][a-z0-9+_-]{0,11}$")
_GENERATED = (
    "_pb2.py",
    "_pb2_grpc.py",
    ".pb.go",
    ".pb.cc",
    ".pb.h",
    "_generated.go",
    ".g.dart",
    ".designer.cs",
    ".min.js",
    ".min.css",
    "-min.js",
)


@dataclass(frozen=True, slots=True)
class Listed:
    path: str
    """Below the workspace, with / between its parts."""
    size: int
    mtime_ns: int
    inode: int
    kind: str
    """The language it is read as, what it is counted as, or `?` for one whose first line must tell."""
    is_parsed: bool
    changed_ns: int = 0
    """When the system last saw it change (ctime): no program can set that back, as it can the time of the content."""


@dataclass(slots=True)
class Listing:
    files: list[Listed] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """By reason."""
    folders: set[str] = field(default_factory=set)
    """Those of other people's code that were left out."""
    by_git: bool = False
    is_cut: bool = False
    """More files than are looked at, or no time to list them all."""


class Lister:
    def __init__(self, workspace: Path, below: str, patterns: Sequence[str], is_over: Callable[[], bool]) -> None:
        self._workspace = workspace
        self._below = below
        self._patterns = Rules(read_rules("\n".join(patterns))) if patterns else None
        self._is_over = is_over

    def listing(self) -> Listing:
        listing = Listing()
        paths = self._from_git()
        listing.by_git = paths is not None
        for number, path in enumerate(self._walked(listing) if paths is None else paths):
            if number >= FILES_AT_MOST or (number % 1024 == 0 and self._is_over()):
                listing.is_cut = True
                break
            self._take(path, listing)
        listing.files.sort(key=lambda one: one.path)
        _settle_headers(listing)
        return listing

    def _take(self, path: str, listing: Listing) -> None:
        if self._patterns is not None and not _is_chosen(self._patterns, self._inner(path)):
            return
        if reason := _reason(path, self._inner(path)):
            if reason != "never":
                listing.skipped[reason] += 1
            if reason == _OTHERS:
                listing.folders.add(_foreign(path, self._inner(path)))
            return
        try:
            status = os.lstat(f"{self._workspace}/{path}")
        except OSError:
            return  # known to git, but no longer there
        if not stat.S_ISREG(status.st_mode):
            what = (
                "links"
                if stat.S_ISLNK(status.st_mode)
                else "repositories inside of it"
                if stat.S_ISDIR(status.st_mode)
                else "special files"
            )
            listing.skipped[what] += 1
            return
        kind, is_parsed = _kind(path)
        if status.st_size > (PARSED_BYTES if is_parsed else COUNTED_BYTES):
            listing.skipped["huge"] += 1
            return
        listing.files.append(Listed(path, status.st_size, status.st_mtime_ns, status.st_ino, kind, is_parsed, status.st_ctime_ns))

    def _inner(self, path: str) -> str:
        """Below what is analysed: whoever points at a folder of other people's code wants to see that."""
        return path if not self._below else path[len(self._below) + 1 :] if path != self._below else path.rsplit("/", 1)[-1]

    def _from_git(self) -> list[str] | None:
        """None where it is no checkout, or git has no say: an ignored folder that was named outright is still wanted."""
        git = Git(folder=self._workspace, stop_at=time.monotonic() + GIT_SECONDS, may_fetch=False)
        try:
            where = f":(top,literal){git.says('rev-parse', '--show-prefix')}{self._below}" if self._below else "."
            output = git.run("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", where)
        except RemitError:
            return None
        paths = sorted({os.fsdecode(raw) for raw in output.split(b"\0") if raw})
        if [path.rstrip("/") for path in paths] == [self._below] and (self._workspace / self._below).is_dir():
            return None  # a repository of its own inside of this one: git names it and says no more
        return [path for path in paths if not path.startswith(("../", "/"))] or None

    def _walked(self, listing: Listing) -> Iterator[str]:
        top = self._workspace / self._below
        if not top.is_dir():
            yield self._below
            return
        walk = Walk(closed=VENDORED)
        prefix = f"{self._below}/" if self._below else ""
        descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for entry in walk.entries(descriptor):
                if not entry.is_folder:
                    yield prefix + entry.path
                elif entry.name in VENDORED - _NEVER:
                    listing.skipped["folders of other people's code"] += 1
                    listing.folders.add(f"{prefix}{entry.path}/")
        finally:
            os.close(descriptor)
            left = {"unreadable folders": len(walk.unreadable), "folders too far down": walk.too_deep}
            listing.skipped.update({reason: count for reason, count in left.items() if count})


def _is_chosen(rules: Rules, path: str) -> bool:
    """Whether patterns name the file or a folder it is in; the deepest that says something decides."""
    parts = path.split("/")
    chosen = False
    for number, name in enumerate(parts, start=1):
        verdict = rules.verdict(name, "/".join(parts[:number]), number < len(parts))
        chosen = chosen if verdict is None else verdict
    return chosen


def _reason(path: str, inner: str) -> str:
    """Why a file is left out, by its name alone."""
    folders = inner.split("/")[:-1]
    if not VENDORED.isdisjoint(folders):
        return "never" if not _NEVER.isdisjoint(folders) else _OTHERS
    lowered = inner.lower()
    if os.path.splitext(lowered)[1] in _BINARY:
        return "binary"
    is_built = "dist" in folders and lowered.endswith((".js", ".cjs", ".mjs", ".d.ts", ".css"))
    return "generated or minified" if is_built or lowered.endswith(_GENERATED) else ""


def _foreign(path: str, inner: str) -> str:
    """The folder because of which it is left out."""
    parts = inner.split("/")
    depth = next(number for number, name in enumerate(parts, start=1) if name in VENDORED)
    return path.removesuffix(inner) + "/".join(parts[:depth]) + "/"


def _kind(path: str) -> tuple[str, bool]:
    name = path.rsplit("/", 1)[-1]
    extension = os.path.splitext(name)[1].lower()
    if extension in BY_EXTENSION:
        return BY_EXTENSION[extension], True
    if not extension or name.startswith("."):
        return ("?", False) if "." not in name else ("dot files", False)
    return OTHERS.get(extension) or (extension if _EXTENSION.match(extension) else "other"), False


def _settle_headers(listing: Listing) -> None:
    """`.h` is C or C++, whichever there is more of beside it."""
    counts = Counter(one.kind for one in listing.files if not one.path.endswith(".h"))
    if counts["C++"] > counts["C"]:
        listing.files = [replace(one, kind="C++", is_parsed=True) if one.path.endswith(".h") else one for one in listing.files]
