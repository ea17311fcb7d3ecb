"""Lists folders recursively through open folders: follows no link, skips ignored files, and is bounded.

In name order, folder by folder. Used by the worker to list and to search, by the coder to analyse."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from remit.system.beneath import Root, open_folder, open_regular
from remit.system.globs import Rule, Rules, below, read_rules

DEEPEST = 100
"""Maximum levels; deeper folders are counted and skipped."""
IGNORE_FILE_BYTES = 256 * 1024
OWN_FOLDERS = frozenset({".git", ".remit"})
"""Folders of git and of remit."""


class Entry(NamedTuple):
    """A found entry. Its folder is open only until the next one is requested."""

    path: str
    """Relative to the start of the listing."""
    name: str
    folder: int
    is_folder: bool
    is_link: bool
    found: "os.DirEntry[str]"

    def stat(self) -> os.stat_result | None:
        try:
            return self.found.stat(follow_symlinks=False)
        except OSError:  # gone by now
            return None


@dataclass(slots=True)
class Walk:
    """Options of a listing, and counts of what was skipped."""

    max_depth: int | None = None
    """1: only the folder itself."""
    stop: Callable[[], bool] = lambda: False
    rules: tuple[tuple[str, Rules], ...] = ()
    """Rules that apply from the start: each with the path of the start relative to its own folder, ending with a slash."""
    keeps_ignored: bool = False
    """Also what git ignores."""
    closed: frozenset[str] = frozenset()
    """Names of folders that are listed but not entered."""
    shows_own: bool = False
    """Everything, including ignored files and folders of git and remit."""
    too_deep: int = 0
    """Folders that were not entered because they are too far down."""
    unreadable: list[str] = field(default_factory=list)
    was_stopped: bool = False

    def entries(self, folder: int) -> Iterator[Entry]:
        """All entries below an open folder, which stays open and belongs to the caller."""
        yield from self._below(folder, "", 1, self.rules)

    def _below(self, folder: int, prefix: str, depth: int, rules: tuple[tuple[str, Rules], ...]) -> Iterator[Entry]:
        try:
            with os.scandir(folder) as scanned:
                found = sorted(scanned, key=lambda entry: entry.name)
        except OSError:
            self.unreadable.append(prefix or ".")
            return
        if not (self.shows_own or self.keeps_ignored) and any(entry.name == ".gitignore" for entry in found):
            rules = (("", Rules(read_rules(_text_at(folder, ".gitignore")))), *rules)
        for entry in found:
            if self.was_stopped or self.stop():
                self.was_stopped = True
                return
            is_folder = entry.is_dir(follow_symlinks=False)
            if not self.shows_own and (entry.name in OWN_FOLDERS or _is_ignored(rules, entry.name, is_folder)):
                continue
            path = prefix + entry.name
            yield Entry(path, entry.name, folder, is_folder, entry.is_symlink(), entry)
            if is_folder and entry.name not in self.closed:
                yield from self._enter(folder, entry.name, path, depth, rules)

    def _enter(self, folder: int, name: str, path: str, depth: int, rules: tuple[tuple[str, Rules], ...]) -> Iterator[Entry]:
        if self.max_depth is not None and depth >= self.max_depth:
            return
        if depth >= DEEPEST:
            self.too_deep += 1
            return
        try:
            inner = open_folder(name, folder=folder)
        except OSError:
            self.unreadable.append(path)
            return
        try:
            deeper = tuple((f"{base}{name}/", one) for base, one in rules)
            yield from self._below(inner, f"{path}/", depth + 1, deeper)
        finally:
            os.close(inner)


def rules_above(root: Root, inside: Sequence[str]) -> list[tuple[tuple[str, ...], list[Rule]]]:
    """Ignore rules between the root and a folder below it, exclusive: nearest last, each with its own folder."""
    held: list[tuple[tuple[str, ...], list[Rule]]] = []
    descriptor = os.dup(root.descriptor)
    try:
        for number, name in enumerate(inside):
            held.append((tuple(inside[:number]), read_rules(_text_at(descriptor, ".gitignore"))))
            deeper = open_folder(name, folder=descriptor)
            os.close(descriptor)
            descriptor = deeper
    except OSError:  # it has been moved meanwhile; what was read so far counts
        pass
    finally:
        os.close(descriptor)
    return [(folder, rules) for folder, rules in held if rules]


def asked_from(above: Sequence[tuple[tuple[str, ...], list[Rule]]], inside: Sequence[str]) -> tuple[tuple[str, Rules], ...]:
    """Those rules for a `Walk` that starts at `inside`."""
    return tuple(("".join(f"{part}/" for part in inside[len(folder) :]), Rules(rules)) for folder, rules in reversed(above))


def written_from(above: Sequence[tuple[tuple[str, ...], list[Rule]]], inside: Sequence[str]) -> str:
    """The same as the text of one ignore file in `inside`, for ripgrep."""
    return "".join(f"{rule.text}\n" for folder, rules in above for rule in below(rules, inside[len(folder) :]))


def _is_ignored(rules: tuple[tuple[str, Rules], ...], name: str, is_folder: bool) -> bool:
    for base, one in rules:
        verdict = one.verdict(name, base + name, is_folder)
        if verdict is not None:
            return verdict
    return False


def _text_at(folder: int, name: str) -> str:
    """A small regular file's text; empty if missing. Git follows no link here either."""
    with contextlib.suppress(OSError), os.fdopen(open_regular(name, folder=folder), "rb") as file:
        return file.read(IGNORE_FILE_BYTES).decode("utf-8", "replace")
    return ""
