"""What a review is of: the change of a path or of a task as git knows it, else the files as they stand. Text of a diff, and what it covers.

The diff always ends at the working tree, so that what is reviewed is what stands there. Blocking; used by `reviewing` alone.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remit.agents.builtin.coder.review.change import DIFF, LIMIT_CHARACTERS, as_new, open_git, read_below
from remit.board.commits import task_commits
from remit.core.errors import Misused
from remit.workspaces.git import Git, GitFailed

LAST_COMMITS = 10
FILES_AT_MOST = 400
CHARACTERS_AT_MOST = min(4_000_000, LIMIT_CHARACTERS)
_BOARD = re.compile(r"^(specs/(state\.json|TODO\.md|archive/|reviews/|\d{3,}_)|\.remit/)")
"""The board's own files: they are no work to review."""
_PASSED_OVER = frozenset({".git", ".remit", "node_modules", "__pycache__", ".venv", "venv", "build", "dist", "target"})

Permitted = Callable[[Sequence[str]], list[str]]
"""Of these paths: those that may be read."""


@dataclass(slots=True)
class Change:
    what: str
    """In words, for the report."""
    text: str = ""
    files: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    """Abbreviated hash and subject, the newest first."""
    not_seen: list[str] = field(default_factory=list)


def change_of_task(workspace: Path, number: int, stop_at: float, permitted: Permitted) -> Change:
    """All commits whose subject begins with `task N`, as one change of the files they touch."""
    try:
        git = open_git(workspace, stop_at)
        commits = task_commits(git, number)
    except (Misused, GitFailed):
        return Change(what=f"task {number}", not_seen=["The commits of the task: there is no git repository with commits here."])
    change = Change(what=f"the commits of task {number}", commits=[f"{one[:9]} {subject}" for one, subject in commits])
    if not commits:
        change.not_seen.append(f"A change: no commit has a subject that begins with `task {number}`.")
        return change
    touched = {path for one, _ in commits for path in _names(git, "diff-tree", "--root", "-r", "-m", "--no-commit-id", "--relative", one)}
    change.files = _readable(sorted(path for path in touched if not _BOARD.match(path)), change, permitted)
    if not change.files:
        change.not_seen.append("A change: the commits of the task touch the board's own files alone.")
    base = _parent(git, commits[-1][0])
    ours = {one for one, _ in commits}
    between = git.says("rev-list", f"{commits[-1][0]}..HEAD", "--", *_literal(change.files)).split() if change.files else []
    others = [one for one in between if one not in ours]
    if others:
        plural = "s have" if len(others) > 1 else " has"
        change.what += (
            f", as their files stand now ({len(others)} other commit{plural} changed these files since; that is reviewed with them)"
        )
    change.text = _diff(git, base, change)
    return change


def change_of_path(workspace: Path, path: str, base: str, stop_at: float, permitted: Permitted) -> Change:
    """What is not committed there; else its last commits, back to `base` where that is given; without git, all that stands there."""
    inside = _inside(workspace, path)
    name = f"`{inside or '.'}`"
    try:
        git = open_git(workspace, stop_at)
    except Misused:
        return _all_of(workspace, inside, f"{name} as it stands, all of it (there is no git here)", permitted)
    within = _literal([inside]) if inside else ["."]
    has_commit = git.code("rev-parse", "--verify", "--quiet", "HEAD")[0] == 0
    new = _own(_names(git, "ls-files", "--others", "--exclude-standard", "--", *within))
    changed = _own(_names(git, "diff", "--relative", "HEAD", "--", *within)) if has_commit else []
    if not has_commit:
        return _all_of(workspace, inside, f"{name} as it stands, all of it (nothing is committed yet)", permitted)
    if base:
        return _since(git, workspace, _known(git, base), f"{name} since {base}", within, new, permitted)
    if new or changed:
        return _since(git, workspace, "HEAD", f"what is not committed in {name}", within, new, permitted)
    commits = git.run("log", f"-n{LAST_COMMITS}", "--format=%H", "--", *within).decode().split()
    if not commits:
        return _all_of(workspace, inside, f"{name} as it stands, all of it", permitted)
    start = _parent(git, commits[-1])
    many = "the last commit" if len(commits) == 1 else f"the last {len(commits)} commits"
    return _since(git, workspace, start, f"{many} that changed {name}", within, [], permitted, len(commits))


def _since(
    git: Git, workspace: Path, start: str, what: str, within: Sequence[str], new: Sequence[str], permitted: Permitted, commits: int = 0
) -> Change:
    change = Change(what=what)
    if commits:
        log = git.run("log", f"-n{commits}", "--format=%h %s", "--", *within).decode("utf-8", "replace")
        change.commits = log.splitlines()
    changed = _own(_names(git, "diff", "--relative", start, "--", *within))
    change.files = _readable(sorted({*changed, *new}), change, permitted)
    known = set(new)
    change.text = _diff(git, start, change, [path for path in change.files if path not in known])
    change.text += "".join(as_new(path, read_below(workspace, path)) for path in change.files if path in known)
    return change


def _all_of(workspace: Path, inside: str, what: str, permitted: Permitted) -> Change:
    """Every file as if it were new: in a project without git that is all there is to compare with."""
    change = Change(what=what)
    top = workspace / inside
    paths = [inside] if top.is_file() else sorted(_walked(workspace, top))
    size = 0
    for path in _readable(_own(paths), change, permitted):
        held = read_below(workspace, path)
        if held.text is None or size + len(held.text) > CHARACTERS_AT_MOST:
            change.not_seen.append(f"`{path}`: {held.fault or 'there was too much to look at'}.")
            continue
        size += len(held.text)
        change.files.append(path)
        change.text += as_new(path, held)
    return change


def _walked(workspace: Path, top: Path) -> list[str]:
    found: list[str] = []
    for folder, names, files in os.walk(top):
        names[:] = sorted(name for name in names if name not in _PASSED_OVER and not name.startswith("."))
        found += [os.path.relpath(os.path.join(folder, file), workspace) for file in files if not file.startswith(".")]
        if len(found) > 10 * FILES_AT_MOST:
            break
    return found


def _diff(git: Git, start: str, change: Change, files: Sequence[str] | None = None) -> str:
    paths = change.files if files is None else files
    if not paths:
        return ""
    text = git.run(*DIFF, start, "--", *_literal(paths)).decode("utf-8", "surrogateescape")
    if len(text) <= CHARACTERS_AT_MOST:
        return text
    change.not_seen.append(
        f"The change as a whole: it has {len(text):,} characters, more than can be reviewed at once. Review parts of it."
    )
    return ""


def _readable(paths: Sequence[str], change: Change, permitted: Permitted) -> list[str]:
    """Those that may be read, and not more of them than can be looked at."""
    allowed = set(permitted(list(paths)))
    kept = [path for path in paths if path in allowed]
    change.not_seen += [f"`{path}`: the policy does not let it be read." for path in paths if path not in allowed][:20]
    if len(kept) > FILES_AT_MOST:
        change.not_seen.append(f"{len(kept) - FILES_AT_MOST} more files: at most {FILES_AT_MOST} are looked at in one review.")
    return kept[:FILES_AT_MOST]


def _names(git: Git, *arguments: str) -> list[str]:
    command, *rest = arguments
    wanted = () if command == "ls-files" else ("--name-only", "--no-renames")
    return [name for name in git.run(command, "-z", *wanted, *rest).decode("utf-8", "surrogateescape").split("\0") if name]


def _own(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if not _BOARD.match(path)]


def _literal(paths: Sequence[str]) -> list[str]:
    return [f":(literal){path}" for path in paths]


def _parent(git: Git, commit: str) -> str:
    found = git.code("rev-parse", "--verify", "--quiet", f"{commit}^")
    return found[1].decode().strip() if found[0] == 0 else git.says("hash-object", "-t", "tree", os.devnull)


def _known(git: Git, base: str) -> str:
    if base.startswith("-") or git.code("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")[0] != 0:
        raise Misused(f"git knows no commit {base!r}.", advice="Name a commit, a branch or a tag.")
    return base


def _inside(workspace: Path, path: str) -> str:
    """From the top of the workspace; empty: all of it. Raises `Misused`."""
    top = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(top, path or "."))
    if real != top and not real.startswith(f"{top.rstrip('/')}/"):
        raise Misused(f"{path} leads out of the project.", advice="Name a folder or file inside of it.")
    if not os.path.exists(real):
        raise Misused(f"There is no {path} in the project.", advice="Name a folder or file inside of it.")
    return "" if real == top else os.path.relpath(real, top)
