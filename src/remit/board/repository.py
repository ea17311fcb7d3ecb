"""The git repository that a project stands in, if any: where its parts are, whether something is under way in it, which paths it takes.

Reads only. Used by `committing`, and by whoever asks what was committed for a task.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remit.core.errors import Unavailable
from remit.workspaces.git import Git, GitFailed

_UNDER_WAY = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}
_OF_THE_REPOSITORY = ("agents", "commands", "context", ".gitignore")
"""What below `.remit/` belongs to the project and not to this machine (as `.remit/.gitignore` says), the policy besides."""
_HASH = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
_PARTS = ("rev-parse", "--is-inside-work-tree", "--absolute-git-dir", "--git-common-dir", "--show-cdup", "--git-path", "hooks")
_AT_ONCE = 400
"""Paths on one command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    root: Path
    """The project's, without links."""
    top: Path
    """Of the checkout: paths are named from here."""
    git_dir: Path
    """Of this checkout: a linked worktree has its own, with its own index."""
    common_dir: Path
    git: Git
    """At the top, as the user: their filters and their ways of keeping the index hold."""
    hooks: Path | None = None
    """Where the user's configuration says that they are; None: it was not asked for."""

    @property
    def index(self) -> Path:
        return self.git_dir / "index"

    @property
    def prefix(self) -> str:
        """The project within the checkout: "" or "sub/project/"."""
        inside = os.path.relpath(self.root, self.top)
        return "" if inside == "." else f"{inside}/"

    def until(self, stop_at: float) -> "Repository":
        return replace(self, git=replace(self.git, stop_at=stop_at))

    def under_way(self) -> str:
        """merge, rebase, …: what a person has begun here and not ended; empty: nothing."""
        return next((word for name, word in _UNDER_WAY.items() if os.path.lexists(self.git_dir / name)), "")

    def has_hooks(self) -> bool:
        """Where the user's configuration says that they are. Samples do not count: git runs what has the very name of a hook."""
        hooks = self.hooks or self.top / self.git.says("rev-parse", "--git-path", "hooks")
        try:
            return any(not name.endswith(".sample") for name in os.listdir(hooks))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def head(self) -> str:
        """The commit checked out; empty: there is none yet."""
        try:
            return self.git.says("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        except GitFailed:
            return ""

    def head_now(self) -> str:
        """The same, right after a commit: git has just written it to the file of its branch, and need not be asked for it."""
        try:
            said = (self.git_dir / "HEAD").read_bytes()
            branch = os.fsdecode(said.removeprefix(b"ref: ").strip())  # as bytes: a name may end in a space that is not ASCII's
            found = (self.common_dir / branch).read_bytes() if branch.startswith("refs/heads/") else said
        except (OSError, ValueError):  # kept in some other way
            found = b""
        return found.strip().decode() if _HASH.fullmatch(found.strip()) else self.head()

    def tree(self, head: str) -> str:
        """What is compared with: HEAD, or the empty tree where there is no commit yet."""
        return head or self.git.says("hash-object", "-t", "tree", os.devnull)

    def untracked(self, paths: Sequence[str]) -> list[str]:
        """Of these paths and below them: the files that are not in the index and not ignored."""
        return [path for some in chunks(paths) for path in _names(self.git.run("ls-files", "-z", "-o", "--exclude-standard", "--", *some))]

    def known(self, paths: Sequence[str], head: str) -> set[str]:
        """Of these paths: those in the index or in HEAD."""
        found: set[str] = set()
        for some in chunks(paths):
            found.update(_names(self.git.run("ls-files", "-z", "--", *some)))
            if head:
                found.update(_names(self.git.run("ls-tree", "-z", "--name-only", head, "--", *(plain(one) for one in some))))
        return found

    def ignored(self, paths: Sequence[str]) -> set[str]:
        asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
        return set(_names(self.git.run("check-ignore", "-z", "--stdin", allowed=(0, 1), stdin=asked))) if paths else set()

    def unmerged(self, paths: Sequence[str]) -> set[str]:
        """Of these paths and below them: the files with a conflict that nobody has settled."""
        entries = [entry for some in chunks(paths) for entry in _names(self.git.run("ls-files", "-z", "--unmerged", "--", *some))]
        return {entry.partition("\t")[2] for entry in entries}

    def changed(self, tree: str, paths: Sequence[str]) -> list[str]:
        """Of these paths and below them: the files whose working copy differs from the tree."""
        options = ("--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=dirty")
        return [path for some in chunks(paths) for path in _names(self.git.run("diff", *options, tree, "--", *some))]

    def others(self, folders: Sequence[str], head: str) -> set[str]:
        """Of these folders: those that are submodules, or repositories of their own."""
        found = {folder for folder in folders if os.path.lexists(self.top / folder / ".git")}
        if head and (self.top / ".gitmodules").exists():
            for some in chunks(list(folders)):
                entries = _names(self.git.run("ls-tree", "-z", head, "--", *some))
                found.update(entry.partition("\t")[2] for entry in entries if entry.startswith("160000 "))
        return found


def task_commits(git: Git, number: int) -> list[tuple[str, str]]:
    """Of this branch, those whose subject says that they are the task's: hash and subject, the newest first."""
    try:
        head = git.says("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitFailed:
        return []
    said = git.run("log", "-z", "--format=%H %s", f"--grep=^task {number}[: ]", head).decode("utf-8", "replace").split("\0")
    found = (line.partition(" ")[::2] for line in said if line)
    return [(commit, subject) for commit, subject in found if re.match(rf"task {number}(:| phase \d+:)", subject)]


def find_repository(root: Path, stop_at: float) -> Repository | None:
    """None: no git, no checkout, or one that leaves the whole project out. Raises `GitFailed` where a repository cannot be used."""
    real = Path(os.path.realpath(root))
    answer = _told_to_user(real, stop_at) or _told(real, stop_at)
    inside, git_dir, common_dir, up, hooks = [*answer.removesuffix("\n").split("\n", 4), "", "", "", ""][:5]
    if inside != "true":
        return None
    top = Path(os.path.realpath(real / up))
    found = Repository(
        root=real,
        top=top,
        git_dir=Path(git_dir),
        common_dir=Path(os.path.realpath(real / common_dir)),
        git=Git(folder=top, stop_at=stop_at, as_user=True),
        hooks=top / hooks if hooks else None,
    )
    if found.prefix and found.ignored([found.prefix.rstrip("/")]):
        return None  # such as a project below a home folder that is a repository of dot files
    return found


def _told_to_user(real: Path, stop_at: float) -> str:
    """Where everything is, the hooks too, where the project is the whole checkout; empty: it is to be asked for one by one."""
    try:
        answer = os.fsdecode(Git(folder=real, stop_at=stop_at, as_user=True).run(*_PARTS))
    except (GitFailed, Unavailable, OSError):  # also no folder for what it says
        return ""
    return answer if answer.count("\n") == len(_PARTS) - 2 and answer.split("\n")[3] == "" else ""


def _told(real: Path, stop_at: float) -> str:
    """The same without the hooks, whatever the user's configuration says, in words that can be compared; empty: there is none."""
    try:
        return os.fsdecode(Git(folder=real, stop_at=stop_at).run(*_PARTS[:-2]))
    except Unavailable as error:
        if error.code == "TOOL_UNAVAILABLE":
            return ""
        raise
    except GitFailed as error:
        if "not a git repository (or any" in error.words or "must be run in a work tree" in error.words:
            return ""
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The paths that were named, as far as git can take them: from the top of the checkout, literal."""

    paths: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """What cannot be committed, and why, each for a sentence."""


def judge(repository: Repository, head: str, paths: Sequence[str], deleted: Sequence[str]) -> Named:
    left_out: list[str] = []
    chosen: dict[str, str] = {}  # as git names it: as the caller did
    for path in dict.fromkeys((*paths, *deleted)):
        placed, why = _placed(repository, path)
        if why:
            left_out.append(f"{_shown(path)} ({why})")
        else:
            chosen[placed] = path
    others = repository.others(list({parent for placed in chosen for parent in _parents(placed)}), head)
    for placed in list(chosen):
        inside = next((parent for parent in _parents(placed) if parent in others), "")
        if inside:
            left_out.append(f"{_shown(chosen.pop(placed))} (in {_shown(inside)}, a repository of its own: commit it there)")
    left_out += [f"{_shown(chosen.pop(placed))} (ignored by git)" for placed in repository.ignored(list(chosen))]
    unmerged = repository.unmerged([literal(path) for path in chosen]) if chosen else set()
    for placed in [one for one in chosen if any(path == one or path.startswith(f"{one}/") for path in unmerged)]:
        left_out.append(f"{_shown(chosen.pop(placed))} (has a conflict that is not settled)")
    absent = [placed for placed in chosen if not os.path.lexists(repository.top / placed)]
    known = repository.known([literal(path) for path in absent], head) if absent else set()
    for placed in absent:
        if placed not in known and not any(one.startswith(f"{placed}/") for one in known):
            path = chosen.pop(placed)
            left_out += [] if path in deleted else [f"{_shown(path)} (not there)"]
    return Named(paths=tuple(literal(path) for path in chosen), left_out=tuple(left_out))


def are_plain(repository: Repository, paths: Sequence[str]) -> tuple[str, ...]:
    """The same paths, literal, where nothing about them needs a question: files that are there, in this repository. Else none."""
    placed = [_placed(repository, path) for path in paths]
    if any(why or not os.path.isfile(repository.top / name) for name, why in placed) or (repository.top / ".gitmodules").exists():
        return ()
    folders = {parent for name, _ in placed for parent in _parents(name)}
    return () if repository.others(list(folders), "") else tuple(literal(name) for name, _ in placed)


def _placed(repository: Repository, path: str) -> tuple[str, str]:
    """From the top, links above it followed; or why not."""
    if "\0" in path or os.path.normpath(path) == ".":
        return "", "no file of the project"
    folder, name = os.path.split(os.path.normpath(repository.root / path))
    real = os.path.join(os.path.realpath(folder), name)
    if not _is_below(real, repository.root):
        return "", "outside the project"
    parts = os.path.relpath(real, repository.root).split(os.sep)
    if any(part.lower() == ".git" for part in parts):
        return "", "git's own"
    if parts[0] == ".remit" and not (len(parts) > 1 and (parts[1] in _OF_THE_REPOSITORY or parts[1].startswith("policy."))):
        return "", "remit's own, of this machine"
    return os.path.relpath(real, repository.top), ""


def literal(path: str) -> str:
    """A pathspec that means this path and nothing else, whatever characters it has."""
    return f":(literal){path}"


def plain(pathspec: str) -> str:
    return pathspec.removeprefix(":(literal)")


def chunks(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    return (paths[at : at + _AT_ONCE] for at in range(0, len(paths), _AT_ONCE))


def _is_below(path: str, folder: Path) -> bool:
    return path.startswith(f"{str(folder).rstrip('/')}/")


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")[:-1]
    return ("/".join(parts[: end + 1]) for end in range(len(parts)))


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def _shown(path: str) -> str:
    return path.encode(errors="replace").decode() if path.isprintable() else repr(path)
