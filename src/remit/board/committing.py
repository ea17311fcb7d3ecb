"""Committing what a command of the board has written: the named paths, nothing else, and never at the price of the command (S6.8).

A commit is made as the user makes one: their name, their hooks, their signature. What they have staged themselves stays staged, byte
for byte. Whatever goes wrong is a warning (`GIT_COMMIT_FAILED`); the files are written either way. Blocking; used by `orchestrator`.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.board.index import InTheWay, KeptIndex, settle_index, wait_for_index
from remit.board.repository import Named, Repository, are_plain, find_repository, judge, literal
from remit.core.errors import RemitError, Unavailable
from remit.system.files import file_lock
from remit.workspaces.git import GitFailed

CODE = "GIT_COMMIT_FAILED"
SUBJECT_LENGTH = 72
LOCK_SECONDS = 30.0
INDEX_SECONDS = 5.0
"""How long the index may be in somebody's hands before we give up."""
WITHIN_HOOK_SECONDS = 0.5
"""How long we wait for either when a git above us has called a hook, and the hook us: it waits for us in turn."""
_TIDY_SECONDS = 15.0
"""For putting the index right, after the time for the commit itself has run out."""
_WORDS_SHOWN = 600
_ONLY = ("--only", "--cleanup=whitespace", "--pathspec-from-file=-", "--pathspec-file-nul")
_SAY_WHO = 'git config --global user.name "Your Name"; git config --global user.email you@example.com'


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What came of it."""

    hash: str = ""
    """Of the commit, whole; empty: none was made."""
    warning: str = ""
    """What was not committed and why, for the person; empty: all is well."""
    nothing: bool = False
    """There was nothing to commit, or no git to commit to."""
    later: bool = False
    """None was made because of something that passes by itself: a merge under way, the index in other hands."""

    @property
    def short(self) -> str:
        return self.hash[:9]


def commit(
    root: Path,
    paths: Sequence[str],
    subject: str,
    *,
    session_id: str = "",
    deleted: Sequence[str] = (),
    body: str = "",
    seconds: float = 60.0,
) -> Committed:
    """Commit these files as they stand in the working tree; paths are relative to `root`, a folder means all below it.

    `deleted`: files that are gone, such as the old name of a renamed one; that they were never in git is fine.
    """
    message = message_of(subject, body=body, session_id=session_id)
    stop_at = time.monotonic() + seconds
    try:
        repository = find_repository(root, stop_at) if (paths or deleted) and is_wanted(root) else None
        if repository is None:
            return Committed(nothing=True)
        with _alone(repository, min(seconds, _patience(LOCK_SECONDS))):
            return _commit(repository, paths, deleted, message)
    except InTheWay as error:
        return Committed(warning=_failed(error.message), later=True)
    except GitFailed as error:
        return Committed(warning=_failed(_reason(error)), later="index.lock" in error.words and "File exists" in error.words)
    except (RemitError, OSError) as error:
        return Committed(warning=_failed(getattr(error, "message", str(error))))


def _patience(seconds: float) -> float:
    return WITHIN_HOOK_SECONDS if "GIT_INDEX_FILE" in os.environ else seconds  # git says so to the hooks of a commit


@contextlib.contextmanager
def _alone(repository: Repository, seconds: float) -> Iterator[None]:
    """One commit of ours at a time."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(file_lock(repository.common_dir / "remit-commit.lock", timeout=seconds))
        except Unavailable as error:
            if error.__cause__ is not None:  # it is not in other hands: it cannot be had at all
                raise
            raise InTheWay(error.message) from None
        yield


def is_wanted(root: Path) -> bool:
    """The setting `board_commits`. Read here and not by `settings`, which takes longer to load than `remit task` may take in all.

    What cannot be read, or is neither true nor false, is reported by whoever reads all settings; here it counts as not said.
    """
    said = os.environ.get("REMIT_BOARD_COMMITS", "").strip().lower()
    if said in ("true", "false"):
        return said == "true"
    for name, table in (("remit.toml", ()), ("pyproject.toml", ("tool", "remit"))):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            text = (root / name).read_bytes()
            found: Any = _toml(text) if b"board_commits" in text else {}
            for key in table:
                found = found.get(key, {})
            if isinstance(found.get("board_commits"), bool):
                return bool(found["board_commits"])
    return True


def _toml(text: bytes) -> Any:
    import tomllib  # only here: most projects leave it at that

    return tomllib.loads(text.decode())


def message_of(subject: str, *, body: str = "", session_id: str = "") -> str:
    parts = [subject_of(subject), _printable(body, keep="\n").strip()]
    if re.fullmatch(r"[A-Za-z0-9_-]+", session_id):
        parts.append(f"Session: {session_id}")
    return "\n\n".join(part for part in parts if part) + "\n"


def subject_of(text: str) -> str:
    """One line of at most 72 characters, cut between words."""
    line = " ".join(_printable(text).split()) or "remit: update the board"
    if len(line) <= SUBJECT_LENGTH:
        return line
    cut = line[:SUBJECT_LENGTH].rpartition(" ")[0]
    return (cut if len(cut) > SUBJECT_LENGTH // 2 else line[: SUBJECT_LENGTH - 1]).rstrip(" ,;:-") + "…"


def _commit(repository: Repository, paths: Sequence[str], deleted: Sequence[str], message: str) -> Committed:
    under_way = repository.under_way()
    if under_way:
        raise InTheWay(f"a {under_way} is under way here, which comes first")
    wait_for_index(repository, _patience(INDEX_SECONDS))
    made = _at_once(repository, paths, message) if not deleted and not repository.has_hooks() else None
    return made or _with_care(repository, paths, deleted, message)


def _at_once(repository: Repository, paths: Sequence[str], message: str) -> Committed | None:
    """Files that git knows, with no hook that could have its say: one command instead of eight, and most commits are such.

    None: git said no, whyever, and has left everything as it was; then it is asked with care.
    """
    plain = are_plain(repository, paths)
    try:
        return _committed(repository, plain, message) if plain else None
    except GitFailed:
        return None


def _with_care(repository: Repository, paths: Sequence[str], deleted: Sequence[str], message: str) -> Committed:
    before = repository.head()
    named = judge(repository, before, paths, deleted)
    if not named.paths:
        return Committed(nothing=not named.left_out, warning=_left_out(named))
    index = KeptIndex.of(repository.index)
    try:
        index = _announce(repository, index, named)
        changed = repository.changed(repository.tree(before), named.paths)
        made = _made(repository, before, changed, message) if changed else Committed(nothing=True)
    except BaseException:
        index.restore(_tidying(repository))
        raise
    if made.nothing:
        index.restore(_tidying(repository))
    else:
        there = settle_index(_tidying(repository), before, made.hash, changed)
        kept_out = [path for path in changed if path not in there]
        if kept_out and not made.warning:
            made = replace(made, warning=f"{CODE}: a hook kept these out of the commit: {_listed(kept_out)}.")
    return replace(made, warning=" ".join(one for one in (made.warning, _left_out(named)) if one))


def _announce(repository: Repository, index: KeptIndex, named: Named) -> KeptIndex:
    """New files are entered in the index as to be added, without content: only then does `commit --only` take them.

    Should we be killed here, that is all that is left: an entry that no commit of the user's would take.
    """
    new = repository.untracked(named.paths)
    if not new:
        return index
    sparse = ("--sparse",) if repository.git.run("config", "--bool", "core.sparseCheckout", allowed=(0, 1)).strip() == b"true" else ()
    asked = b"\0".join(literal(path).encode(errors="surrogateescape") for path in new)
    try:
        repository.git.run("add", "--intent-to-add", *sparse, "--pathspec-from-file=-", "--pathspec-file-nul", stdin=asked)
    finally:
        index = index.changed_by_us(new)
    return index


def _made(repository: Repository, before: str, changed: Sequence[str], message: str) -> Committed:
    try:
        return _committed(repository, [literal(path) for path in changed], message)
    except (GitFailed, Unavailable) as error:
        late = _tidying(repository)
        after = late.head()
        # It may have been stopped after the commit was made: by a post-commit hook that hangs, for one.
        if after != before and late.git.says("rev-list", "--parents", "-n", "1", after).split()[1:] == [one for one in (before,) if one]:
            return Committed(hash=after, warning=f"The commit was made, but git did not end well: {_reason(error)}.")
        if isinstance(error, GitFailed) and _is_nothing(late, changed):
            return Committed(nothing=True)
        raise


def _committed(repository: Repository, paths: Sequence[str], message: str) -> Committed:
    repository.git.run("commit", "--quiet", *_ONLY, "-m", message, stdin=_asked(paths))
    return Committed(hash=repository.head_now())


def _asked(paths: Sequence[str]) -> bytes:
    return b"\0".join(path.encode(errors="surrogateescape") for path in paths)


def _is_nothing(repository: Repository, changed: Sequence[str]) -> bool:
    """Git finds no difference after all: what its filters make of the files is what it has."""
    try:
        repository.git.run("commit", "--dry-run", "--quiet", *_ONLY, stdin=_asked([literal(path) for path in changed]))
    except GitFailed as error:
        return error.exit_code == 1
    return False


def _tidying(repository: Repository) -> Repository:
    return repository.until(max(repository.git.stop_at, time.monotonic() + _TIDY_SECONDS))


def _reason(error: RemitError) -> str:
    """The end of what git or a hook said: there stands why."""
    if not isinstance(error, GitFailed):
        return f"{error.message.rstrip('.')} (a hook or a question for a passphrase may be waiting)"
    lines = [line.strip() for line in _printable(error.words, keep="\n").splitlines()]
    words = "; ".join(line for line in lines if line and not line.startswith("hint:")).replace(":; ", ": ")
    if "tell me who you are" in error.words or "user.useConfigOnly" in error.words:
        return (
            'git does not know who you are. Run: git config --global user.name "Your Name"; git config --global user.email you@example.com'
        )
    return ("…" + words[-_WORDS_SHOWN:] if len(words) > _WORDS_SHOWN else words).rstrip(".") or f"git said no ({error.exit_code})"


def _failed(why: str) -> str:
    return f"{CODE}: {why.rstrip('.')}. The files are written, but not committed."


def _left_out(named: Named) -> str:
    if not named.left_out:
        return ""
    off = "" if named.paths else " (board_commits = false in remit.toml leaves git alone.)"
    return f"Not committed: {_listed(named.left_out)}.{off}"


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _printable(text: str, keep: str = "") -> str:
    cleaned = "".join(c if c.isprintable() or c in keep else " " for c in text)
    return cleaned.encode(errors="replace").decode()
