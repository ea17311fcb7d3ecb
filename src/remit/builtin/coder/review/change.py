"""The change under review: its origin, and every file before and after it.

Any input (a diff as text, a commit, a branch, files) becomes two trees in a temporary git repository. git parses and applies diffs there,
in its own index. The repository of the project is only read: its hooks, filters, attributes and diff programs are not used, and nothing is
written to the workspace."""

import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from remit.builtin.coder.source_files import list_files, permitted_paths, read_bytes
from remit.builtin.coder.syntax import language_of
from remit.core.errors import Misused, RemitError
from remit.system.beneath import Root, parts_of
from remit.system.files import temporary_folder
from remit.system.git import NO_SUBMODULES, Git, GitFailed, GitTimedOut, open_to_read

LIMIT_CHARACTERS = 20_000_000
FILE_LIMIT_BYTES = 5_000_000
FILES_LIMIT = 2_000
NOT_A_DIFF = "Give a unified diff (git diff, diff -u), @FILE for a patch file, or staged, working, REV or REV..REV for what git knows."
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ABSOLUTE = re.compile(r"^(?:---|\+\+\+) (?!/dev/null)(/|[A-Za-z]:[/\\])")
_REVISION = re.compile(r"^(?![-^])[A-Za-z0-9_./@{}^~+=-]{1,200}$")
"""A name for one commit: no option (`-x`), no exclusion (`^x`)."""
_ESCAPES = {bytes([code]): bytes([code]) for code in range(256)} | {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"a": b"\a", b"b": b"\b"}
TIME_WAS_UP = "the time limit was reached before it could be tried"
_WITHHELD = "the policy does not let it be read"
_OVERRIDES = (("core.bigFileThreshold", str(FILE_LIMIT_BYTES)), ("core.attributesFile", os.devnull), ("apply.whitespace", "nowarn"))

_KINDS = {"120000": "a symbolic link", "160000": "a submodule"}
"""By the mode that git gives them."""


class State(StrEnum):
    APPLIES = "applies"
    APPLIED = "already applied"
    FAILS = "does not apply"
    UNCHECKED = "not checked"


class Content(NamedTuple):
    """A file of the workspace: its bytes, None if it does not exist, or why it cannot be read."""

    data: bytes | None = None
    fault: str = ""
    is_withheld: bool = False


class Fault(NamedTuple):
    message: str
    line: int | None = None
    """Of the file."""
    leads_out: bool = False


@dataclass(kw_only=True)
class ChangedFile:
    """The part of a diff that changes one file."""

    path: str = ""
    state: State = State.APPLIES
    before: str | None = None
    after: str | None = None
    """None: removed, not text, or unknown because the diff does not apply."""
    header: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    lines: dict[int, str] = field(default_factory=dict)
    """The lines of the diff by their new number, each prefixed with `+` or a space."""
    removed: list[str] = field(default_factory=list)
    note: str = ""
    """Why it was not checked."""
    faults: Sequence[Fault] = ()

    @cached_property
    def added(self) -> dict[int, str]:
        return {number: line[1:] for number, line in self.lines.items() if line.startswith("+")}

    @property
    def language(self) -> str:
        return language_of(self.path, (self.after or "")[:200])

    @property
    def is_new(self) -> bool:
        return self._has("new file mode", "--- /dev/null")

    @property
    def is_gone(self) -> bool:
        return self._has("deleted file mode", "+++ /dev/null")

    @property
    def kind(self) -> str:
        """A kind that cannot be reviewed as text; empty for text."""
        if self._has("Binary files ", "GIT binary patch"):
            return "binary"
        mode = self.fact("new file mode ", "deleted file mode ", "old mode ") or self.fact("index ").partition(" ")[2]
        return _KINDS.get(mode, "")

    def fact(self, *starts: str) -> str:
        """The rest of the first header line with this prefix."""
        return next((line[len(start) :] for line in self.header for start in starts if line.startswith(start)), "")

    def _has(self, *starts: str) -> bool:
        return any(line.startswith(starts) for line in self.header)

    def names(self, strip: int = 1) -> list[str]:
        """The new name of the file, and the old one. `strip`: number of folders to remove."""
        if moved := self.fact("rename to ", "copy to "):
            return [_unquote(moved), _unquote(self.fact("rename from ", "copy from "))]
        given = [name for name in (self.fact("+++ "), self.fact("--- ")) if name and not name.startswith("/dev/null")]
        if given:
            plain = [_unquote(name.partition("\t")[0]) for name in given]
            return [name.split("/", strip)[-1] if name.count("/") >= strip else name for name in plain]
        names = self.header[0].removeprefix("diff --git ")  # both are the same: nothing was renamed
        last = '"' + names.rpartition(' "')[2] if names.endswith('"') else names[len(names) // 2 + 1 :] or names
        return [_unquote(last).removeprefix("b/")]

    def named(self, strip: int = 1) -> "ChangedFile":
        self.path = self.names(strip)[0]
        self.note = f"it is {self.kind}" if self.kind else ""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    what: str
    """In words, for the report."""
    files: Sequence[ChangedFile]
    is_applied_to_workspace: bool = False
    """It was given as a diff and tried on the files of the workspace."""

    @property
    def state(self) -> State:
        states = {file.state for file in self.files}
        if State.FAILS in states:
            return State.FAILS
        states.discard(State.UNCHECKED)
        return State.UNCHECKED if not states else State.APPLIED if states == {State.APPLIED} else State.APPLIES


# ---- a diff as text


def split_diff(text: str) -> list[ChangedFile]:
    """One section per file, in order. Text around them (a mail, a log) is skipped. Linear in the text."""
    if len(text) > LIMIT_CHARACTERS:
        raise _invalid(f"The diff has {len(text):,} characters; at most {LIMIT_CHARACTERS:,} are reviewed.", "Review a part of it.")
    sections: list[ChangedFile] = []
    lines = text.split("\n")
    old = new = number = 0
    for index, line in enumerate(lines):
        section = sections[-1] if sections else None
        if section is not None and (old > 0 or new > 0) and line[:1] in ("", " ", "+", "-", "\r", "\\"):
            kind = line[:1] if line[:1] in ("+", "-", "\\") else " "
            if kind in " +":
                section.lines[number] = kind + line[1:].rstrip("\r")
            elif kind == "-":
                section.removed.append(line[1:].rstrip("\r"))
            old, new, number = old - (kind in " -"), new - (kind in " +"), number + (kind in " +")
            section.body.append(line)
            continue
        old = new = 0
        bare = line.rstrip("\r")
        is_git = section is not None and not section.body and section.header[0].startswith("diff --git ")
        is_pair = bare.startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ ")
        if bare.startswith("diff --git ") or (is_pair and not is_git):
            sections.append(ChangedFile(header=[bare]))
        elif found := _HUNK.match(bare):
            if section is None:
                raise _invalid(f"Line {index + 1} of the diff begins a hunk, but no file was named before it.", NOT_A_DIFF)
            _, old, number, new = (1 if part is None else int(part) for part in found.groups())
            section.body.append(bare)
        elif section is not None and not section.body:
            section.header.append(bare)
        elif section is not None and line[:1] in ("\\", "+", "-", " ") and bare not in ("-- ", "--"):
            section.body.append(line)
    return sections


def _invalid(message: str, advice: str) -> Misused:
    return Misused(message, code="INVALID_PARAMETERS", advice=advice)


def leads_out(path: str) -> str:
    """Why this path must not be used; empty if it may."""
    try:
        parts = parts_of(path)
    except RemitError as error:
        return error.message.rstrip(".")
    if any(part.lower().rstrip(". ") == ".git" for part in parts):
        return "it lies in the folder of git itself"
    is_plain = "/".join(parts) == path and not any(ord(character) < 32 or ord(character) == 127 for character in path)
    return "" if is_plain else "it has an empty or dotted part, or control characters"


# ---- files of the workspace


def _stream_name(name: str) -> bytes:
    """For `git fast-import`; `leads_out` has refused control characters."""
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return os.fsencode(f'"{quoted}"' if name.startswith('"') else name)


def _unquote(name: str) -> str:
    if len(name) < 2 or name[0] != '"' or name[-1] != '"':
        return name
    raw = name[1:-1].encode("utf-8", "surrogateescape")
    return os.fsdecode(re.sub(rb"\\([0-3][0-7]{2}|.)", lambda one: _ESCAPES.get(one[1]) or bytes([int(one[1], 8)]), raw))


class Files:
    """The files of the workspace that the policy allows."""

    def __init__(self, root: Path, permitted: Callable[[Sequence[str]], Iterable[str]]) -> None:
        self.root = root
        self._permitted = permitted

    def withheld(self, paths: Iterable[str]) -> set[str]:
        asked = set(paths)
        return asked - permitted_paths(asked, self._permitted)

    def read(self, paths: Iterable[str]) -> dict[str, Content]:
        names = list(dict.fromkeys(paths))
        withheld = self.withheld(name for name in names if not leads_out(name))
        return {name: Content(fault=_WITHHELD, is_withheld=True) if name in withheld else self._read(name) for name in names}

    def _read(self, path: str) -> Content:
        """Links on the way are not followed."""
        if why := leads_out(path):
            return Content(fault=why)
        try:
            with Root(self.root) as root:
                return Content(read_bytes(root, path, FILE_LIMIT_BYTES))
        except FileNotFoundError:
            return Content()
        except OSError as error:
            return Content(fault=str(error).rstrip("."))

    def text(self, path: str) -> str:
        """Of one file, named by the caller. Raises `Misused`."""
        content = self.read([path])[path]
        if content.data is None or b"\0" in content.data[:8000]:
            why = content.fault or ("there is no such file" if content.data is None else "it is binary")
            raise _invalid(f"{path} cannot be read: {why}.", "Name a text file of the workspace, relative to it.")
        return content.data.decode("utf-8", "surrogateescape")


# ---- two trees in a separate repository


class TreeStore:
    """A temporary git repository: writes trees, applies diffs to an index, compares trees. `objects`: of another repository, read only."""

    def __init__(self, folder: Path, stop_at: float, source: Git | None = None) -> None:
        self._git = Git(folder=folder, git_dir=folder / "store", stop_at=stop_at, may_fetch=False, overrides=_OVERRIDES)
        form = source.says("rev-parse", "--show-object-format") if source is not None else "sha1"
        plain = Git(folder=folder, stop_at=stop_at)
        plain.run("init", "-q", "--bare", "--template=", f"--object-format={form}", str(folder / "store"))
        if source is not None:
            objects = (source.folder / source.says("rev-parse", "--git-path", "objects")).resolve()
            (folder / "store" / "objects" / "info").mkdir(parents=True, exist_ok=True)
            (folder / "store" / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        self._folder = folder
        self._numbers = itertools.count()
        self.empty = self.write({})

    def write(self, files: Mapping[str, bytes], base: str = "", removed: Iterable[str] = ()) -> str:
        """The id of a tree: `base` with these files in it."""
        ref = f"refs/heads/{next(self._numbers)}"
        parts = [f"commit {ref}\ncommitter remit <remit@localhost> 0 +0000\ndata 0\n".encode()]
        parts += [f'M 040000 {base} ""\n'.encode()] if base else []
        parts += [b"D %b\n" % _stream_name(name) for name in removed]
        for name, data in files.items():
            parts += [b"M 100644 inline %b\ndata %d\n" % (_stream_name(name), len(data)), data, b"\n"]
        self._git.run("fast-import", "--quiet", "--force", stdin=b"".join(parts))
        return self._git.says("rev-parse", f"{ref}^{{tree}}")

    def write_index(self, entries: bytes) -> str:
        """The tree of the output of `git ls-files -s -z`."""
        index = self._index()
        index.run("update-index", "-z", "--index-info", stdin=entries)
        return index.says("write-tree", "--missing-ok")

    def _index(self) -> Git:
        return self._git.using(self._folder / f"index-{next(self._numbers)}")

    def apply(self, tree: str, patch: bytes, *options: str) -> str:
        """The tree after the diff. Raises `GitFailed` where it does not apply."""
        index = self._index()
        index.run("read-tree", tree)
        index.run("apply", "--cached", "--whitespace=nowarn", *options, "-", stdin=patch)
        return index.says("write-tree")

    def compare(self, base: str, new: str, files: Files) -> list[ChangedFile]:
        """Every file that differs, with its text and its lines. An empty id is a tree without files."""
        trees = (base or self.empty, new or self.empty)
        raw = self._git.run("diff-tree", "-r", "-M", "-l400", "-p", "--no-ext-diff", "--no-textconv", "--full-index", *trees)
        sections = split_diff(raw.decode("utf-8", "surrogateescape"))
        withheld = files.withheld({name for section in sections for name in section.names()})
        readable = [section for section in sections if withheld.isdisjoint(section.names())]
        ids = {id(section): section.fact("index ").partition(" ")[0].split("..") for section in readable if not section.kind}
        contents = self._contents({one for pair in ids.values() for one in pair if one})
        found = [ChangedFile(path=name, state=State.UNCHECKED, note=_WITHHELD) for name in sorted(withheld)]
        for section in readable:
            file = section.named()
            file.before, file.after = (contents.get(one) for one in (*ids.get(id(section), ()), "", "")[:2])
            found.append(file)
        return found

    def _contents(self, ids: Iterable[str]) -> dict[str, str]:
        """Text by id; large files are omitted."""
        asked = "".join(f"{one}\n" for one in ids).encode()
        sizes = [line.split() for line in self._git.run("cat-file", "--batch-check", stdin=asked).decode().splitlines()]
        small = {line[0]: int(line[2]) for line in sizes if line[1:2] == ["blob"] and int(line[2]) <= FILE_LIMIT_BYTES}
        data = self._git.run("cat-file", "--batch", stdin="".join(f"{one}\n" for one in small).encode())
        found, at = {}, 0
        for one, size in small.items():
            at = data.index(b"\n", at) + 1
            found[one] = data[at : at + size].decode("utf-8", "surrogateescape")
            at += size + 1
        return found


# ---- applying


class PatchTrial:
    """A diff tried on the files of the workspace: as a whole and, if that fails, file by file."""

    def __init__(self, store: TreeStore, files: Files, sections: Sequence[ChangedFile]) -> None:
        self._store = store
        self._files = files
        self._sections = sections
        self._strip = self._find_strip()

    def run(self) -> list[ChangedFile]:
        """Links, submodules and binary files are not tried."""
        plain = [section for section in self._sections if not section.kind]
        odd = self._fail([section for section in self._sections if section.kind])
        found = self._attempt(plain) if plain else []
        if any(file.state in (State.FAILS, State.UNCHECKED) for file in found):
            groups: dict[str, list[ChangedFile]] = {}
            for section in plain:
                groups.setdefault(section.names(self._strip)[0], []).append(section)
            found = [file for group in groups.values() for file in self._attempt(group)]
        return [*found, *odd]

    def _find_strip(self) -> int:
        """git's own diffs have one folder before their names (`a/`, `b/`), plain ones may not."""
        if any(section.header[0].startswith("diff --git ") for section in self._sections):
            return 1
        contents = self._files.read(name for section in self._sections[:20] for name in section.names(0))
        return 0 if any(content.data is not None for content in contents.values()) else 1

    def _attempt(self, sections: Sequence[ChangedFile]) -> list[ChangedFile]:
        """The files after the diff, or one with the reason for failure."""
        patch = "".join(f"{line}\n" for section in sections for line in (*section.header, *section.body)).encode("utf-8", "surrogateescape")
        if any(_ABSOLUTE.match(line) for section in sections for line in section.header):
            return self._fail(sections, Fault("It is not a path below the workspace.", leads_out=True))
        names = [name for section in sections for name in section.names(self._strip)]
        if why := next(filter(None, map(leads_out, names)), ""):
            return self._fail(sections, Fault(f"{why[0].upper()}{why[1:]}.", leads_out=True))
        contents = self._files.read(names)
        name, content = next(((name, one) for name, one in contents.items() if one.fault), ("", Content()))
        if content.is_withheld:
            return self._fail(sections, note=content.fault)
        try:
            return self._fail(sections, Fault(f"{name}: {content.fault}.")) if name else self._apply(sections, patch, contents)
        except GitTimedOut:
            return self._fail(sections, note=TIME_WAS_UP)

    def _apply(self, sections: Sequence[ChangedFile], patch: bytes, contents: Mapping[str, Content]) -> list[ChangedFile]:
        tree = self._store.write({name: content.data for name, content in contents.items() if content.data is not None})
        has_context = any(line.startswith(" ") for section in sections for line in section.lines.values())
        options = (f"-p{self._strip}", *(() if has_context else ("--unidiff-zero",)))
        try:
            return self._store.compare(tree, self._store.apply(tree, patch, *options), self._files)
        except GitFailed as failed:
            words = [line.removeprefix("error: ") for line in failed.words.splitlines()[:20] if line.startswith("error: ")]
            faults = [_fault(one) for one in words if not one.endswith("patch does not apply")] or [Fault("It does not apply.")]
        try:
            before = self._store.apply(tree, patch, *options, "-R")
        except GitFailed:
            return self._fail(sections, *faults)
        return [replace(file, state=State.APPLIED) for file in self._store.compare(before, tree, self._files)]

    def _fail(self, sections: Sequence[ChangedFile], *faults: Fault, note: str = "") -> list[ChangedFile]:
        state = State.FAILS if faults else State.UNCHECKED
        files = [section.named(self._strip) for section in sections]
        return [replace(file, state=state, faults=faults, note=note or file.note) for file in files]


def _fault(words: str) -> Fault:
    """One of git's reasons."""
    if found := re.fullmatch(r"patch failed: (.+):(\d{1,9})", words):
        return Fault(f"The hunk at line {found[2]} does not match the file. Lines or line ends differ.", int(found[2]) or None)
    return Fault(f"git: {words}."[:400])


# ---- where it comes from


class ChangeSource:
    """Finds the change: in text, in a file, in the git repository of the project, in the workspace."""

    def __init__(self, files: Files, stop_at: float) -> None:
        self._files = files
        self._stop_at = stop_at

    def from_diff(self, diff: str) -> Change:
        """A unified diff, `@FILE`, `staged`, `working`, a revision or a range."""
        word = diff.strip()
        if not word:
            raise _invalid("The diff is empty.", NOT_A_DIFF)
        if "\n" in word or len(word) > 420:
            return self.from_text(diff, "a diff given as text")
        if word.startswith("@") and not word.startswith("@@") and not re.match(r"@(\{|$|~|\^)|@\.\.", word):
            return self.from_text(self._files.text(word[1:]), f"the patch file {word[1:]}")
        if word in ("staged", "working"):
            return self.staged() if word == "staged" else self.working()
        left, dots, right = word.partition("..." if "..." in word else "..")
        if not all(_REVISION.match(name) for name in (left, right) if name) or not (left or right):
            raise _invalid(f"{word[:80]!r} is neither a diff nor something git knows.", NOT_A_DIFF)
        return self.range(left or "HEAD", dots, right or "HEAD") if dots else self.commit(left)

    def from_text(self, text: str, what: str) -> Change:
        sections = split_diff(text)
        if not sections:
            raise _invalid("The text contains no unified diff.", NOT_A_DIFF)
        with self._store() as store:
            return Change(what=what, files=PatchTrial(store, self._files, sections).run(), is_applied_to_workspace=True)

    def path(self, path: str | Sequence[str], since: str = "") -> Change:
        """Files with every line counted as new, or their changes since a commit or tree."""
        if isinstance(path, str):
            listing = list_files(self._files.root, path, (), lambda: time.monotonic() > self._stop_at)
            names = [one.path for one in listing.files]
        else:
            names, path = list(path), f"{len(path)} files"
        if not since:
            return self._workspace(f"{path} as it is", names)
        git = self._open_git()
        return self._workspace(f"{path} since {since}", names, git, _tree(git, _resolve(git, since, "tree")))

    def commit(self, revision: str) -> Change:
        git = self._open_git()
        commit = _resolve(git, revision)
        return self._between(f"the commit {revision} ({commit[:10]})", git, f"{commit}^1", commit)

    def range(self, left: str, dots: str, right: str) -> Change:
        """From one revision to another; with three dots, from their merge base."""
        git = self._open_git()
        start, end = _resolve(git, left), _resolve(git, right)
        if dots == "...":
            code, said = git.code("merge-base", start, end)
            start = said.decode().strip()
            if code:
                raise _invalid(f"{left} and {right} have no common ancestor.", f"Give diff={left}..{right}.")
        return self._between(f"{left}{dots}{right} ({start[:10]} to {end[:10]})", git, start, end)

    def _between(self, what: str, git: Git, start: str, end: str) -> Change:
        with self._store(git) as store:
            return Change(what=what, files=store.compare(_tree(git, start), _tree(git, end), self._files))

    def staged(self) -> Change:
        git = self._open_git()
        with self._store(git) as store:
            staged = store.write_index(git.run("ls-files", "-s", "-z"))
            return Change(what="what is staged", files=store.compare(_tree(git, "HEAD"), staged, self._files))

    def working(self) -> Change:
        """Everything uncommitted, including new files."""
        git = self._open_git()
        head = _tree(git, "HEAD")
        known = ("diff", "--name-only", "--no-renames", "-z", NO_SUBMODULES, "--relative", "HEAD", "--") if head else ("ls-files", "-z")
        listed = git.run(*known) + git.run("ls-files", "--others", "--exclude-standard", "-z")
        names = [name for name in os.fsdecode(listed).split("\0") if name and not name.startswith(".remit/")]
        return self._workspace("what is not committed, new files among it", names, git, head)

    def _workspace(self, what: str, names: Sequence[str], git: Git | None = None, base: str = "") -> Change:
        """These files of the workspace against a tree."""
        contents = self._files.read(names[:FILES_LIMIT])
        written = {name: content.data for name, content in contents.items() if content.data is not None}
        gone = [name for name, content in contents.items() if content == Content()]
        what += f", the first {FILES_LIMIT:,} files of it" if len(names) > FILES_LIMIT else ""
        with self._store(git) as store:
            found = store.compare(base, store.write(written, base, gone), self._files)
        found += [ChangedFile(path=name, state=State.UNCHECKED, note=content.fault) for name, content in contents.items() if content.fault]
        return Change(what=what, files=found)

    def _open_git(self) -> Git:
        try:
            return open_to_read(self._files.root, self._stop_at)
        except GitFailed:
            raise _invalid(f"{self._files.root.name} is not in a git repository.", "Give the diff as text, @FILE or a path.") from None

    @contextmanager
    def _store(self, source: Git | None = None) -> Iterator[TreeStore]:
        with temporary_folder("remit-review-") as folder:
            yield TreeStore(folder, self._stop_at, source)


def _resolve(git: Git, revision: str, kind: str = "commit") -> str:
    if _REVISION.match(revision):
        code, said = git.code("rev-parse", "--verify", "--quiet", f"{revision}^{{{kind}}}")
        if code == 0:
            return said.decode().strip()
    raise _invalid(f"git knows no {kind} {revision[:80]!r} here.", NOT_A_DIFF)


def _tree(git: Git, revision: str) -> str:
    """The tree of the workspace, which may be a folder of the repository; empty if it is not in that revision."""
    try:
        return git.says("rev-parse", "--verify", "--quiet", f"{revision}:./")
    except GitFailed:
        return ""
