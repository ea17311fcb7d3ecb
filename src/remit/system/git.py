"""Runs git with a time limit and without hooks, editors, prompts and additions of the user's configuration.

Only `as_user` enables them: a commit that a person will find in their history is made with their name, hooks and filters. Blocking.

An agent in a worktree can write the repository's configuration, and commands set there must not run here. Filters and merge drivers are
reset to their values when the workspace was created (`held`); a missing object is fetched only if that was so before. Everything else that
git would run is disabled."""

import contextlib
import hashlib
import os
import re
import resource
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, NamedTuple

from remit.core.errors import Failed, Unavailable
from remit.system.artifact_files import read_bounded
from remit.system.interpreter import BASIC, DESKTOP, NETWORK, TOOLCHAINS, listed_environment, without_relative_entries
from remit.system.processes import MARK, kill_tree

LOCK_WAIT_SECONDS = 20.0
_OPERATIONS = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}
REPOSITORY_LOCK = "remit.lock"
"""In the repository's own folder: worktrees are created, merged and removed one at a time."""
COMMIT_LOCK = "remit-commit.lock"
"""Held while a commit is made from the checkout, or its branch is moved. Taken after the other."""
BARE = "cannot use bare repository"
_FOUND_BARE = {"safe.bareRepository": "explicit"}
"""Files of an agent (HEAD, config, objects, refs) are not a repository: git would run its commands."""
NO_SUBMODULES = "--ignore-submodules=dirty"
"""For `diff` and `status`, which would run git in each inner repository, and so the filters of its configuration."""
_SETTINGS = {
    **_FOUND_BARE,
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.splitIndex": "false",
    "core.looseCompression": "1",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "submodule.recurse": "false",
    "merge.verifySignatures": "false",
    "log.showSignature": "false",
    "user.name": "remit",
    "user.email": "remit@localhost",
}
_AS_USER = {
    **_FOUND_BARE,
    "gc.auto": "0",
    "maintenance.auto": "false",
    "core.looseCompression": "1",
    "diff.autoRefreshIndex": "true",
    "log.showSignature": "false",
    "i18n.commitEncoding": "utf-8",
}
"""Remit's settings even then: no lengthy garbage collection, and messages in UTF-8."""
_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH", "GIT_SSH", "GIT_SSH_COMMAND", "GNUPGHOME")
_KEPT_AS_USER = (
    "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_CEILING_DIRECTORIES",
    "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_*", "GIT_CONFIG_VALUE_*", "GIT_CONFIG_PARAMETERS", "PRE_COMMIT_*", "SKIP", "HUSKY",
)  # fmt: skip
_WHOSE = (MARK, "REMIT_SESSION", "REMIT_ROOT", "REMIT_CALLER", "REMIT_BOARD_COMMITS")
"""Variables that mark a hook as belonging to an agent, if one started this process."""
_TERM_GRACE_SECONDS = 0.5
"""Between SIGTERM, at which git removes its lock files, and SIGKILL."""
_COMMAND_SETTINGS = (
    r"^(filter\..*|merge\..*\.driver"
    r"|remote\..*|extensions\.partialclone|core\.(sshcommand|gitproxy|askpass)|protocol\..*|url\..*|credential\..*|ssh\..*)$"
)
_SCRIPT_BYTES = 1 << 20
_PLAIN_MERGE = "git merge-file -q --marker-size=%L %A %O %B"
"""git's default without a driver. An empty one would lose the other side."""


class GitTimedOut(Unavailable):
    """Git did not end in time."""


class GitFailed(Failed):
    """Git failed: `words` is its message."""

    def __init__(self, what: str, words: str, exit_code: int) -> None:
        super().__init__(f"git {what} failed: {_reason(words)}")
        self.words = words
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """Git in one folder, with a time limit."""

    folder: Path
    stop_at: float
    """Monotonic: no command runs longer."""
    git_dir: Path | None = None
    """Set explicitly if the folder belongs to an agent: its changes to `.git` must not redirect git to another repository."""
    index: Path | None = None
    work_tree: Path | None = None
    """Set with `git_dir` if the folder is not the whole of it."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Settings by name, before any configuration (see `held`)."""
    may_fetch: bool = True
    """Whether missing objects may be fetched in a partial clone."""
    memory_bytes: int | None = None
    """Limit of its memory, for input (`stdin`) that may inflate."""
    as_user: bool = False
    """With the user's identity, hooks, filters and signing, as if they had typed it; still without a terminal and with a time limit."""

    def using(self, index: Path) -> "Git":
        return replace(self, index=index)

    def run(self, *arguments: str, allowed: tuple[int, ...] = (0,), stdout: "IO[bytes] | None" = None, stdin: bytes | None = None) -> bytes:
        """Its output. Raises `GitFailed` if it fails, `Unavailable` without git or time."""
        return self._run(arguments, allowed, stdout, stdin)[1]

    def says(self, *arguments: str) -> str:
        """Its output as one line."""
        return os.fsdecode(self.run(*arguments).rstrip(b"\n"))

    def warnings(self, *arguments: str) -> str:
        """What it says beside its output, of a command that succeeds."""
        return self._run(arguments, (0,))[2]

    def asks(self, *arguments: str) -> bool:
        """For questions that git answers by its exit code."""
        return self._run(arguments, (0, 1))[0] == 0

    def code(self, *arguments: str) -> tuple[int, bytes]:
        """For commands whose exit code 1 is an answer."""
        return self._run(arguments, (0, 1))[:2]

    def merge_trees(self, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
        """The merged tree of two commits, and the files with conflicts. No file is touched."""
        code, output = self.code("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
        tree, *names = [os.fsdecode(part) for part in output.split(b"\0") if part]
        return tree, (tuple(names) or ("a file that git does not name",)) if code else ()

    def _run(
        self, arguments: tuple[str, ...], allowed: tuple[int, ...], stdout: "IO[bytes] | None" = None, stdin: bytes | None = None
    ) -> tuple[int, bytes, str]:
        """Exit code, output, messages. By files, not pipes: a background process of a hook keeps a pipe open, and would be waited for."""
        seconds = self.stop_at - time.monotonic()
        if seconds <= 0:
            raise _too_slow(arguments)
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as words:
            given.write(stdin or b"")
            given.seek(0)
            try:
                process = subprocess.Popen(
                    self._command(arguments), cwd=self.folder, env=self._environment(), start_new_session=True,
                    stdin=given, stdout=stdout or output, stderr=words,
                )  # fmt: skip
            except OSError as error:
                raise Unavailable(
                    f"git could not be started in {self.folder}: {error.strerror or error}.",
                    code="TOOL_UNAVAILABLE",
                    advice='Install git, or declare the agent with workspace = "shared".',
                ) from None
            try:
                if self.memory_bytes is not None:
                    with contextlib.suppress(ProcessLookupError):
                        resource.prlimit(process.pid, resource.RLIMIT_DATA, (self.memory_bytes, self.memory_bytes))
                code = _wait(process, seconds)
            except BaseException as error:  # also Ctrl-C: in its own session, it would continue
                kill_tree(process.pid, term_grace=_TERM_GRACE_SECONDS if self.as_user else 0.0)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise _too_slow(arguments) from None
                raise
            for file in (output, words):
                file.seek(0)
            said = words.read().decode(errors="replace")
            if code not in allowed:
                raise GitFailed(arguments[0], said, code)
            return code, output.read(), said

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        command = ["git"]
        for name, value in (_AS_USER if self.as_user else _SETTINGS).items():
            command += ["-c", f"{name}={value}"]
        if self.git_dir is not None:
            command += [f"--git-dir={self.git_dir}", f"--work-tree={self.work_tree or self.folder}"]
        return [*command, *arguments]

    def _environment(self) -> Mapping[str, str]:
        """Without keys, which hooks and filters would see, and without variables of a git that started this process."""
        environment = without_relative_entries(listed_environment((*BASIC, *TOOLCHAINS, *NETWORK, *DESKTOP, *_KEPT)))
        environment |= {name: os.environ[name] for name in _WHOSE if name in os.environ}
        environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_OPTIONAL_LOCKS": "0"}
        if self.as_user:
            environment |= listed_environment(_KEPT_AS_USER)  # without GPG_TTY: a passphrase prompt must fail at once
        else:
            environment["LC_ALL"] = "C"
        if self.index is not None:
            environment["GIT_INDEX_FILE"] = str(self.index)
        if not self.may_fetch:
            environment["GIT_ALLOW_PROTOCOL"] = "none"
        if self.overrides:  # not by `-c`, which ends a name at its first "="
            environment["GIT_CONFIG_COUNT"] = str(len(self.overrides))
            for number, (name, value) in enumerate(self.overrides):
                environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        return environment


def operation_in(git_dir: Path) -> str:
    """merge, rebase, …: an operation of a person in progress; empty: none."""
    return next((word for name, word in _OPERATIONS.items() if os.path.lexists(git_dir / name)), "")


class Settings(NamedTuple):
    commands: Mapping[str, str]
    """Filters and merge drivers, by name."""
    fetching: str
    """A digest of how missing objects are fetched (URLs may contain passwords); empty if they are not."""


def settings_of(git: Git) -> Settings:
    commands: dict[str, str] = {}
    fetching: list[str] = []
    for entry in git.code("config", "-z", "--get-regexp", _COMMAND_SETTINGS)[1].decode(errors="surrogateescape").split("\0"):
        name, has_value, value = entry.partition("\n")
        if name.startswith(("filter.", "merge.")):
            commands[name] = value if has_value else "true"
        elif name:
            fetching.append(entry)
    is_partial = any(entry.startswith("extensions.partialclone\n") or ".promisor" in entry for entry in fetching)
    return Settings(commands, hashlib.sha256("\0".join(fetching).encode(errors="surrogateescape")).hexdigest() if is_partial else "")


def with_recorded_settings(git: Git, before: Settings, *, base: str | None = None) -> Git:
    """Git with these settings restored; `overrides` names those that changed since, or run a file that differs from `base`, the commit that
    an agent started from."""
    now = settings_of(git)
    usable = {name: words for name, words in before.commands.items() if base is None or not _runs_changed_file(git, base, words)}
    names = sorted(name for name in {*now.commands, *usable} if now.commands.get(name) != usable.get(name))
    overrides = tuple((name, usable.get(name, _PLAIN_MERGE if name.startswith("merge.") else "")) for name in names)
    return replace(git, overrides=overrides, may_fetch=bool(before.fetching) and now.fetching == before.fetching)


def open_to_read(folder: Path, stop_at: float) -> Git:
    """The repository around a folder, without its filters and merge drivers. Raises `GitFailed` if there is none."""
    git = Git(folder=folder, stop_at=stop_at, may_fetch=False)
    git.run("rev-parse", "--git-dir")
    return with_recorded_settings(git, Settings({}, ""))


def _runs_changed_file(git: Git, base: str, command: str) -> bool:
    """Whether a filter or merge driver names a changed file of the workspace: it would run here as the agent left it."""
    for word in filter(None, re.split(r"[\s;&|<>()'\"`$=]+", command)):
        path = os.path.normpath(word)
        if os.path.isabs(path) or path.startswith("..") or not os.path.lexists(git.folder / path) or os.path.isdir(git.folder / path):
            continue
        try:
            if read_bounded(git.folder / path, _SCRIPT_BYTES) != git.run("cat-file", "blob", f"{base}:./{path}"):
                return True
        except GitFailed:
            return True  # it is new
    return False


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    """`Popen.wait` without its delay of up to 50 ms."""
    handle = os.pidfd_open(process.pid)
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        waiting.poll(seconds * 1000)
    finally:
        os.close(handle)
    return process.wait(timeout=0.0)


def _too_slow(arguments: tuple[str, ...]) -> GitTimedOut:
    return GitTimedOut(f"git {arguments[0]} did not end in the time there was.", advice="Give the delegation a longer timeout.")


def _reason(words: str) -> str:
    """Git's reason, before advice, warnings and usage."""
    lines = [line.strip() for line in words.strip().splitlines() if line.strip() and not line.startswith("hint:")]
    reasons = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return "; ".join((reasons or lines[:1])[-4:])[:800] or "it gave no reason"
