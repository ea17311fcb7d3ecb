"""Git commits of the board: exactly the named paths, with the user's configuration. A failed commit never fails its command.

The user's staged changes stay staged. Name, hooks, filters and signature are the user's. A failure is a warning (`GIT_COMMIT_FAILED`).
Blocking.

A pending commit is noted in the same write set as its files, and made when the change is written. Then the note is removed, whatever the
outcome; only a commit that must wait (a merge in progress) stays noted. The next change makes the commits that ended processes left. A
note counts only where it was made: one that came with a clone could name any file of the project."""

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.core.errors import ErrorInfo, RemitError, Unavailable
from remit.core.text import list_some, one_line, shorten
from remit.system.files import file_lock
from remit.system.git import BARE, COMMIT_LOCK, NO_SUBMODULES, Git, GitFailed, operation_in
from remit.system.ownership import is_sealed, seal
from remit.system.processes import ProcessIdentity

if TYPE_CHECKING:
    from remit.board.board import Board

CODE = "GIT_COMMIT_FAILED"
SUBJECT_LENGTH = 72
GIT_SECONDS = 20.0
"""For questions about commits and changes."""
LOCK_SECONDS = 30.0
INDEX_SECONDS = 5.0
"""How long to wait while another git locks the index."""
_TIDY_SECONDS = 15.0
"""For git's index, after the time for the commit itself has ended."""
_WORDS_SHOWN = 600
NOTES = ".remit/board/uncommitted"
GIVEN_UP_SECONDS = 600.0
"""The next change makes an older pending commit even if its process lives or cannot be checked: a commit ends within two minutes."""
_SHARED = ("agents", "commands", "context", ".gitignore")
"""Parts of `.remit/` that belong to the project rather than to this machine (see `.remit/.gitignore`), beside the policy."""
_STAGED = ("diff-index", "--cached", "--name-only", "-z", "--no-renames")
_PARTS = ("rev-parse", "--is-inside-work-tree", "--absolute-git-dir", "--git-common-dir", "--show-cdup")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """The outcome."""

    hash: str = ""
    """Full hash of the commit; empty: none. Without a warning there was nothing to commit, or no repository."""
    warning: str = ""
    """Paths that were not committed, and why; empty: all were."""
    later: bool = False
    """Not made for a temporary reason: a merge in progress, a locked index."""

    @property
    def short(self) -> str:
        return self.hash[:9]


class Busy(Unavailable):
    """Something else must end first: the commit can be made later."""


def commit(
    root: Path,
    paths: Sequence[str],
    subject: str,
    *,
    session_id: str = "",
    deleted: Sequence[str] = (),
    seconds: float = 60.0,
    wanted: bool | None = None,
) -> CommitResult:
    """Commit these files from the working tree. Paths are relative to `root`; a folder means all files below it.

    `deleted`: removed files, such as the old name of a renamed one. Git need not know them. `wanted`: the setting `board_commits`, if it is
    known."""
    message = message_of(subject, session_id)
    stop_at = time.monotonic() + seconds
    try:
        is_made = bool(paths or deleted) and (is_wanted(root) if wanted is None else wanted)
        repository = find_repository(root, stop_at) if is_made else None
        if repository is None:
            return CommitResult()
        with _alone(repository, min(seconds, LOCK_SECONDS)):
            return _commit(repository, paths, deleted, message)
    except Busy as error:
        return CommitResult(warning=_failed(error.message), later=True)
    except GitFailed as error:
        return CommitResult(warning=_failed(_reason(error)), later="index.lock" in error.words and "File exists" in error.words)
    except (RemitError, OSError) as error:
        return CommitResult(warning=_failed(getattr(error, "message", str(error))))


def is_wanted(root: Path) -> bool:
    """The setting `board_commits` of a project that is not open. Most do not set it, and loading all takes longer than `remit task`.

    Invalid settings are reported when all of them are read; here they count as unset."""
    is_set = "REMIT_BOARD_COMMITS" in os.environ
    for name in ("remit.toml", "pyproject.toml"):
        with contextlib.suppress(OSError):
            is_set = is_set or b"board_commits" in (root / name).read_bytes()
    if is_set:
        from remit.system.settings_files import load_settings

        with contextlib.suppress(RemitError):
            return load_settings(root).board_commits
    return True


def message_of(subject: str, session_id: str = "") -> str:
    trailer = f"\nSession: {session_id}\n" if re.fullmatch(r"[A-Za-z0-9_-]+", session_id) else ""
    return f"{subject_of(subject)}\n{trailer}"


def subject_of(text: str) -> str:
    """One line of at most 72 characters, cut between words."""
    return shorten(one_line(text) or "remit: update the board", SUBJECT_LENGTH, at_word=True)


# ---- the repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    root: Path
    """The project's root, without links."""
    top: Path
    """Top of the checkout: paths are relative to it."""
    git_dir: Path
    """Git directory of this checkout: a linked worktree has its own, with its own index."""
    common_dir: Path
    git: Git
    """Git at the top, with the user's configuration."""

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

    def head(self) -> str:
        """HEAD; empty without a commit."""
        try:
            return self.git.says("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        except GitFailed:
            return ""

    def tree(self, head: str) -> str:
        """HEAD, or the empty tree without a commit."""
        return head or self.git.says("hash-object", "-t", "tree", os.devnull)

    def with_paths(self, *arguments: str, paths: Sequence[str]) -> None:
        """Run a command that takes any number of paths."""
        stdin = _lines([literal(path) for path in paths])
        self.git.run(*arguments, "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin)

    def names(self, *arguments: str, paths: Sequence[str] = ()) -> list[str]:
        """The paths that a command lists with `-z`."""
        return _names(self.git.run(*arguments, *(("--", *map(literal, paths)) if paths else ())))


def find_repository(root: Path, stop_at: float) -> Repository | None:
    """None: no git, no checkout, or one that ignores the project. Raises `GitFailed` if a repository cannot be used."""
    real = Path(os.path.realpath(root))
    try:
        answer = os.fsdecode(Git(folder=real, stop_at=stop_at).run(*_PARTS))
    except Unavailable as error:
        if error.code == "TOOL_UNAVAILABLE":
            return None
        raise
    except GitFailed as error:
        if any(words in error.words for words in ("not a git repository (or any", "must be run in a work tree", BARE)):
            return None
        raise
    inside, git_dir, common_dir, up = [*answer.removesuffix("\n").split("\n", 3), "", "", ""][:4]
    if inside != "true":
        return None
    top = Path(os.path.realpath(real / up))
    found = Repository(
        root=real,
        top=top,
        git_dir=Path(git_dir),
        common_dir=Path(os.path.realpath(real / common_dir)),
        git=Git(folder=top, stop_at=stop_at, as_user=True),
    )
    if found.prefix and found.git.run("check-ignore", "-z", "--stdin", allowed=(0, 1), stdin=_lines([found.prefix.rstrip("/")])):
        return None  # such as a project below a home folder that is a repository of dot files
    return found


def task_commits(git: Git, number: int) -> list[tuple[str, str]]:
    """Commits of this branch whose subject names the task: hash and subject, newest first."""
    try:
        head = git.says("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitFailed:
        return []
    said = git.run("log", "-z", "--format=%H %s", f"--grep=^task {number}[: ]", head).decode("utf-8", "replace").split("\0")
    found = (line.partition(" ")[::2] for line in said if line)
    return [(commit, subject) for commit, subject in found if re.match(rf"task {number}(:| phase \d+:)", subject)]


def literal(path: str) -> str:
    """A pathspec that matches exactly this path, whatever characters it has."""
    return f":(literal){path}"


# ---- which of the named paths can be committed


def _select(repository: Repository, paths: Sequence[str], deleted: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The paths from the top of the checkout, each with the caller's name; and omitted ones with the reason."""
    left_out: list[str] = []
    chosen: dict[str, str] = {}
    for path in dict.fromkeys((*paths, *deleted)):
        placed, why = _placed(repository, path)
        if why:
            left_out.append(f"{one_line(path)} ({why})")
        else:
            chosen[placed] = path
    conflicts = repository.names("ls-files", "-z", "--unmerged", paths=list(chosen)) if chosen else []
    unmerged = _with_parents([entry.partition("\t")[2] for entry in conflicts])
    left_out += [f"{one_line(chosen.pop(one))} (has a conflict that is not resolved)" for one in list(chosen) if one in unmerged]
    return chosen, left_out


def _placed(repository: Repository, path: str) -> tuple[str, str]:
    """The path from the top with links resolved; or why it cannot be committed."""
    if "\0" in path or os.path.normpath(path) == ".":
        return "", "no file of the project"
    folder, name = os.path.split(os.path.normpath(repository.root / path))
    real = os.path.join(os.path.realpath(folder), name)
    if not real.startswith(f"{str(repository.root).rstrip('/')}/"):
        return "", "outside the project"
    parts = os.path.relpath(real, repository.root).split(os.sep)
    if any(part.lower() == ".git" for part in parts):
        return "", "git's own"
    if parts[0] == ".remit" and not (len(parts) > 1 and (parts[1] in _SHARED or parts[1].startswith("policy."))):
        return "", "remit's own, of this machine"
    return os.path.relpath(real, repository.top), ""


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")[:-1]
    return ("/".join(parts[: end + 1]) for end in range(len(parts)))


def _with_parents(paths: Sequence[str]) -> set[str]:
    return {*paths, *(parent for path in paths for parent in _parents(path))}


# ---- making the commit


def _commit(repository: Repository, paths: Sequence[str], deleted: Sequence[str], message: str) -> CommitResult:
    if operation := operation_in(repository.git_dir):
        raise Busy(f"a {operation} is in progress here and must end first")
    before = repository.head()
    chosen, left_out = _select(repository, paths, deleted)
    changed, new = _changes(repository, before, chosen, deleted, left_out) if chosen else ([], [])
    made = _make(repository, before, changed, new, message) if changed else CommitResult()
    if left_out:
        made = replace(made, warning=f"{made.warning} Not committed: {list_some(left_out, 5)}.".strip())
    return made


def _changes(
    repository: Repository, before: str, chosen: dict[str, str], deleted: Sequence[str], left_out: list[str]
) -> tuple[list[str], list[str]]:
    """The files that differ from HEAD, and those of them that git does not know yet."""
    paths = list(chosen)
    new = [file for file in repository.names("ls-files", "-z", "--others", "--exclude-standard", paths=paths) if not file.endswith("/")]
    known = _with_parents([*new, *repository.names("ls-files", "-z", paths=paths)])
    for placed, path in chosen.items():
        if placed not in known and (os.path.lexists(repository.top / placed) or path not in deleted):
            left_out.append(f"{one_line(path)} ({'ignored by git' if os.path.lexists(repository.top / placed) else 'not there'})")
    return list(dict.fromkeys((*_differing(repository, before, paths), *new))), new


def _differing(repository: Repository, before: str, paths: Sequence[str]) -> list[str]:
    """The known files of the working tree that differ from HEAD."""
    return repository.names("diff", "--name-only", "-z", "--no-renames", NO_SUBMODULES, repository.tree(before), paths=paths)


def _make(repository: Repository, before: str, changed: Sequence[str], new: Sequence[str], message: str) -> CommitResult:
    """`git commit --only`: what the user has staged in other files stays staged. Git must know new files first."""
    _wait_for_index(repository)
    staged = repository.names(*_STAGED, repository.tree(before))
    trouble = ""
    try:
        if new:
            repository.with_paths("add", "--intent-to-add", paths=new)
            changed = _differing(repository, before, changed)  # a file that was taken out of the index may be as it was
        if not changed:
            repository.with_paths("reset", "--quiet", paths=new)
            return CommitResult()
        repository.with_paths("commit", "--only", "--quiet", "--cleanup=whitespace", "-m", message, paths=changed)
    except BaseException as error:
        late = _tidying(repository)
        if new and late.head() == before:
            late.with_paths("reset", "--quiet", paths=new)
        if late.head() == before or not isinstance(error, GitFailed | Unavailable):
            raise
        # It was stopped after the commit was made, for example by a hanging post-commit hook.
        trouble = f"The commit was made, but git failed afterwards: {_reason(error)}."
    late = _tidying(repository)
    try:  # a hook, such as a formatter, may have committed other contents and more files than the index has
        committed = late.names("diff-tree", "--root", "-r", "--no-commit-id", "--name-only", "-z", "--no-renames", "HEAD")
        paths = [*new, *(path for path in committed if path in changed or path not in staged)]
        if paths:
            late.with_paths("reset", "--quiet", paths=list(dict.fromkeys(paths)))
    except RemitError as error:
        trouble = f"The commit was made, but git's index was not updated: {_reason(error)}."
    return CommitResult(hash=late.head(), warning=trouble)


@contextlib.contextmanager
def _alone(repository: Repository, seconds: float) -> Iterator[None]:
    """One commit of remit at a time."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(file_lock(repository.common_dir / COMMIT_LOCK, timeout=seconds))
        except Unavailable as error:
            raise Busy(error.message) from None
        yield


def _wait_for_index(repository: Repository) -> None:
    """Wait until no git writes it. Raises `Busy` with the lock."""
    lock = repository.index.with_name("index.lock")
    give_up_at = min(time.monotonic() + INDEX_SECONDS, repository.git.stop_at)
    while os.path.lexists(lock):
        if time.monotonic() >= give_up_at:
            raise Busy(f"{lock} is held. If no git is running here, one that died left it: remove it")
        time.sleep(0.05)


def _tidying(repository: Repository) -> Repository:
    return repository.until(max(repository.git.stop_at, time.monotonic() + _TIDY_SECONDS))


# ---- pending commits


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommit(ProcessIdentity):
    """A commit requested by a change of the board, noted until it is made."""

    subject: str
    paths: tuple[str, ...]
    """Beside the board's own files."""
    deleted: tuple[str, ...] = ()
    session_id: str = ""
    command: str = ""
    task_number: int | None = None
    since: float
    """Wall clock."""
    name: str = field(default_factory=lambda: secrets.token_hex(6))

    @property
    def note(self) -> str:
        """Path of its note, relative to the root."""
        return f"{NOTES}/{self.name}.json"

    def to_bytes(self, root: Path) -> bytes:
        said = asdict(self)
        with contextlib.suppress(RemitError, OSError):  # without a key the change is still written, and committed unless it is interrupted
            said["seal"] = seal(self._sealed_text(root))
        return json.dumps(said).encode()

    def is_made_here(self, root: Path, found: object) -> bool:
        """Whether this user's remit made the note with this seal, in this project."""
        with contextlib.suppress(RemitError, OSError):
            return is_sealed(self._sealed_text(root), found)
        return False

    def _sealed_text(self, root: Path) -> str:
        return json.dumps([os.path.realpath(root), self.name, self.subject, self.paths, self.deleted, self.session_id])

    def is_left(self, now: float) -> bool:
        """Whether no live process will make it."""
        return self.is_dead or not 0.0 <= now - self.since <= GIVEN_UP_SECONDS

    def make(self, board: "Board") -> CommitResult:
        """Make it. A failure is written to the error ledger, unless the commit only has to wait."""
        own = [path.relative_to(board.root).as_posix() for path in (board.state_path, board.todo_path) if path.exists()]
        paths = (*self.paths, *own)
        made = commit(board.root, paths, self.subject, session_id=self.session_id, deleted=self.deleted, wanted=board.commits)
        note = board.root / self.note
        if made.later and note.exists():
            with contextlib.suppress(OSError):  # it counts as left at once
                note.write_bytes(replace(self, since=0.0).to_bytes(board.root))
            return replace(made, warning=f"{made.warning} The next command of the board tries again.")
        with contextlib.suppress(OSError):
            note.unlink()
        if made.warning:
            note_failed_commit(board.root, made.warning, self.command, self.task_number, self.session_id)
        return made


def make_left_commits(board: "Board") -> Iterator[str]:
    """Make the commits that ended processes left. Returns a line for each."""
    now = board.clock.wall()
    notes = []
    for pending, found in filter(None, map(_read_note, (board.root / NOTES).iterdir())):
        if pending.is_made_here(board.root, found):
            notes.append(pending)
            continue
        with contextlib.suppress(OSError):
            (board.root / pending.note).unlink()
        yield f"Not committed, as its note was not made here: {list_some(list(map(one_line, pending.paths)), 5) or 'the board'}."
    for pending in sorted(notes, key=lambda one: one.since):
        if not pending.is_left(now):
            continue
        made = pending.make(board)
        if made.hash:
            yield f"Committed what an earlier command had written before it ended: {pending.subject} ({made.short})."
        if made.warning:
            yield f"{pending.subject}: {made.warning}"
        if made.later:  # the others would fail likewise
            return


def _read_note(path: Path) -> tuple[PendingCommit, object] | None:
    """With its seal. None: missing or invalid."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        said = json.loads(path.read_bytes())
        found = PendingCommit(**{one.name: said[one.name] for one in fields(PendingCommit) if one.name in said})
        if found.name == path.stem and "pid" in said:
            return replace(found, paths=tuple(map(str, found.paths)), deleted=tuple(map(str, found.deleted))), said.get("seal")
    return None


def note_failed_commit(root: Path, warning: str, command: str, task_number: int | None = None, session_id: str = "") -> None:
    """An unwritable ledger must not fail the command: the warning is shown anyway."""
    from remit.runtime.error_ledger import ErrorLedger, ErrorOccurrence

    advice = "Commit the files by hand; the message says what git reported."
    error = ErrorInfo(type="git", message=warning, code=CODE, recoverable=True, recommendation=advice)
    with contextlib.suppress(RemitError):
        ErrorLedger(root / ".remit" / "errors.json").note(
            [ErrorOccurrence(error=error, command=command, task_number=task_number, session_id=session_id or None)]
        )


# ---- words


def _reason(error: RemitError) -> str:
    """The end of the output of git or a hook, which has the reason."""
    if isinstance(error, Busy):
        return error.message.rstrip(".")
    if not isinstance(error, GitFailed):
        return f"{error.message.rstrip('.')} (a hook or a question for a passphrase may be waiting)"
    lines = map(one_line, error.words.splitlines())
    words = "; ".join(line for line in lines if line and not line.startswith("hint:")).replace(":; ", ": ")
    return ("…" + words[-_WORDS_SHOWN:] if len(words) > _WORDS_SHOWN else words).rstrip(".") or f"git exited with {error.exit_code}"


def _failed(why: str) -> str:
    return f"{CODE}: {why.rstrip('.')}. The files are written, but not committed."


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def _lines(texts: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(text) + b"\0" for text in texts)
