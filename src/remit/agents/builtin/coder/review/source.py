"""Where the change comes from: a diff as text, a patch file of the workspace, or what git knows (staged, working, a commit, a range).

With git, the files are those that git shows (a commit's, the index's), not what stands in the workspace now. Filters, hooks, external diff
programs and text conversions of the repository are switched off: its configuration is not ours to run.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from remit.agents.builtin.coder.review.applying import Held, Read
from remit.agents.builtin.coder.review.patch import LIMIT_CHARACTERS, NOT_A_DIFF
from remit.agents.builtin.coder.review.tree import decoded, read_below
from remit.core.errors import Misused
from remit.workspaces.git import Git, GitFailed
from remit.workspaces.held import settings_of

_REVISION = re.compile(r"^(?!-)[A-Za-z0-9_./@{}^~+=-]{1,200}$")
_WORDS = {"staged": "staged", "cached": "staged", "working": "working", "uncommitted": "working"}
DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", "-M", "--full-index", "--relative")
NEW_FILES_LIMIT = 300


@dataclass(frozen=True, slots=True)
class Source:
    text: str
    what: str
    """In words, for the report."""
    read: Read
    """The files to check it against."""
    is_git: bool = False
    in_workspace: bool = True


def find_source(diff: str, workspace: Path, stop_at: float, permit: Callable[[str], str]) -> Source:
    """`permit` says why a path must not be read; empty when it may."""
    in_workspace = _guarded(lambda path: read_below(workspace, path), permit)
    word = diff.strip()
    if not word:
        raise Misused("The diff is empty.", code="INVALID_PARAMETERS", advice=NOT_A_DIFF)
    if "\n" in word or len(word) > 420:
        return Source(diff, "a diff given as text", in_workspace)
    if word.startswith("@") and not word.startswith("@@") and not re.match(r"@(\{|$|~|\^)|@\.\.", word):
        return Source(_patch_file(in_workspace, word[1:]), f"the patch file {word[1:]}", in_workspace)
    git = open_git(workspace, stop_at)
    if word in _WORDS:
        return _index(git, workspace, permit) if _WORDS[word] == "staged" else _working(git, in_workspace)
    left, dots, right = word.partition("..." if "..." in word else "..")
    if not all(_REVISION.match(name) for name in (left, right) if name) or not (left or right):
        raise Misused(f"{word[:80]!r} is neither a diff nor something git knows.", code="INVALID_PARAMETERS", advice=NOT_A_DIFF)
    return _range(git, left or "HEAD", dots, right or "HEAD", permit) if dots else _commit(git, left, permit)


def _patch_file(read: Read, path: str) -> str:
    held = read(path)
    if held.text is None:
        raise Misused(
            f"The patch file {path} cannot be read: {held.fault or 'there is no such file'}.",
            code="INVALID_PARAMETERS",
            advice="Name a file of the workspace, relative to it.",
        )
    return held.text


def _guarded(read: Read, permit: Callable[[str], str]) -> Read:
    def guarded(path: str) -> Held:
        why = permit(path)
        return Held(fault=why, is_withheld=True) if why else read(path)

    return guarded


def open_git(workspace: Path, stop_at: float) -> Git:
    git = Git(folder=workspace, stop_at=stop_at, may_fetch=False)
    try:
        git.run("rev-parse", "--git-dir")
        off = tuple((name, "") for name in settings_of(git).commands if name.startswith("filter."))
    except GitFailed:
        raise Misused(
            f"{workspace.name} is not in a git repository, so there is nothing to take the change from.",
            code="INVALID_PARAMETERS",
            advice="Give the diff as text, or @FILE.",
        ) from None
    return replace(git, overrides=off)


def _text(git: Git, *arguments: str) -> str:
    try:
        held = git.run(*DIFF, *arguments)
    except GitFailed as failed:
        raise _unknown(arguments, failed) from None
    if len(held) > LIMIT_CHARACTERS:
        raise Misused(
            f"The change has {len(held):,} bytes; at most {LIMIT_CHARACTERS:,} are reviewed.",
            code="INVALID_PARAMETERS",
            advice="Review a part of it.",
        )
    return held.decode("utf-8", "surrogateescape")


def _unknown(arguments: tuple[str, ...], failed: GitFailed) -> Misused:
    words = failed.words.strip().partition("\n")[0][:200]
    return Misused(f"git does not know what to compare: {words}", code="INVALID_PARAMETERS", advice=NOT_A_DIFF)


def _commit_id(git: Git, revision: str) -> str:
    try:
        return git.says("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").removeprefix("--end-of-options\n")
    except GitFailed:
        raise Misused(f"{revision!r} is neither a diff nor a commit here.", code="INVALID_PARAMETERS", advice=NOT_A_DIFF) from None


def _commit(git: Git, revision: str, permit: Callable[[str], str]) -> Source:
    commit = _commit_id(git, revision)
    try:
        parent = _commit_id(git, f"{commit}^1")
    except Misused:
        parent = git.says("hash-object", "-t", "tree", os.devnull)  # the first commit: everything in it is new
    return Source(
        _text(git, parent, commit, "--"), f"the commit {revision} ({commit[:10]})", _of_revision(git, commit, permit), True, False
    )


def _range(git: Git, left: str, dots: str, right: str, permit: Callable[[str], str]) -> Source:
    start, end = _commit_id(git, left), _commit_id(git, right)
    if dots == "...":
        try:
            start = git.says("merge-base", start, end)
        except GitFailed:
            raise Misused(
                f"{left} and {right} have no common ancestor.", code="INVALID_PARAMETERS", advice=f"Use {left}..{right}."
            ) from None
    return Source(
        _text(git, start, end, "--"), f"{left}{dots}{right} ({start[:10]} to {end[:10]})", _of_revision(git, end, permit), True, False
    )


def _index(git: Git, workspace: Path, permit: Callable[[str], str]) -> Source:
    return Source(_text(git, "--cached", "--"), "what is staged", _of_revision(git, "", permit), True)


def _of_revision(git: Git, revision: str, permit: Callable[[str], str]) -> Read:
    def read(path: str) -> Held:
        name = f"{revision}:./{path}"
        try:
            kind = git.says("cat-file", "-t", name)
            if kind != "blob":
                return Held(fault="it is no plain file")
            return decoded(git.run("cat-file", "blob", name))
        except GitFailed:
            return Held()

    return _guarded(read, permit)


def _working(git: Git, read: Read) -> Source:
    """All that is not committed, new files among it."""
    has_commit = git.code("rev-parse", "--verify", "--quiet", "HEAD")[0] == 0
    base = ("HEAD",) if has_commit else ("--cached",)
    text = _text(git, *base, "--")
    names = git.run("ls-files", "--others", "--exclude-standard", "-z").decode("utf-8", "surrogateescape").split("\0")
    new = [name for name in names if name and not name.startswith(".remit/")]
    text += "".join(as_new(name, read(name)) for name in new[:NEW_FILES_LIMIT])
    return Source(text, "what is not committed, new files among it", read, True)


def as_new(name: str, held: Held) -> str:
    quoted = '"b/' + "".join(_octal(character) for character in name) + '"'
    head = f'diff --git "a/{quoted[3:]} {quoted}\nnew file mode 100644\n'
    if held.text is None:
        return f"{head}Binary files /dev/null and b/x differ\n" if held.fault == "it is binary" else ""
    if not held.text:
        return head
    lines = held.text.split("\n")
    ended = lines[-1] == ""
    body = "".join(f"+{line}\n" for line in (lines[:-1] if ended else lines))
    count = len(lines) - ended
    return f"{head}--- /dev/null\n+++ {quoted}\n@@ -0,0 +1,{count} @@\n{body}" + ("" if ended else "\\ No newline at end of file\n")


def _octal(character: str) -> str:
    if character.isascii() and character.isprintable() and character not in '"\\':
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))
