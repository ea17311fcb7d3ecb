"""Running git: bounded in time, deaf to hooks, editors, prompts and whatever the user's configuration would add to what we ask for.

Knows no workspace. Blocking; used by the rest of this package alone.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from remit.core.errors import Failed, Unavailable

LOCK_WAIT_SECONDS = 20.0
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.splitIndex": "false",
    "core.looseCompression": "1",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "submodule.recurse": "false",
    "merge.verifySignatures": "false",
    "user.name": "remit",
    "user.email": "remit@localhost",
}
_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH")


class GitFailed(Failed):
    """Git ran and said no: `words` is what it said."""

    def __init__(self, what: str, words: str, exit_code: int) -> None:
        super().__init__(f"git {what} failed: {_reason(words)}")
        self.words = words
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """Git in one folder, until a given moment."""

    folder: Path
    stop_at: float
    """Monotonic: no command runs beyond it."""
    git_dir: Path | None = None
    """Named outright where the folder is an agent's: what it did to `.git` there must not lead us into another repository."""
    index: Path | None = None
    work_tree: Path | None = None
    """Where `git_dir` is named and the folder is not the whole of it."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Settings by name, before what stands in any configuration (see `held`)."""
    may_fetch: bool = True
    """Whether objects that are missing may be fetched, where the repository is a partial clone."""

    def using(self, index: Path) -> "Git":
        return replace(self, index=index)

    def run(self, *arguments: str, allowed: tuple[int, ...] = (0,), stdout: "IO[bytes] | None" = None) -> bytes:
        """What it prints. Raises `GitFailed` when it says no, `Unavailable` when there is no git or no time."""
        return self._run(arguments, allowed, stdout)[1]

    def says(self, *arguments: str) -> str:
        """Its answer in one line."""
        return os.fsdecode(self.run(*arguments).rstrip(b"\n"))

    def asks(self, *arguments: str) -> bool:
        """A question that git answers by its exit code."""
        return self._run(arguments, (0, 1), None)[0] == 0

    def code(self, *arguments: str) -> tuple[int, bytes]:
        """For commands whose failure 1 is an answer."""
        return self._run(arguments, (0, 1), None)

    def _run(self, arguments: tuple[str, ...], allowed: tuple[int, ...], stdout: "IO[bytes] | None") -> tuple[int, bytes]:
        seconds = self.stop_at - time.monotonic()
        if seconds <= 0:
            raise _too_slow(arguments)
        try:
            process = subprocess.Popen(
                self._command(arguments), cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL,
                stdout=stdout or subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise _not_started(error, self.folder) from None
        with process:
            try:
                output, words = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with whatever filter it started
                raise _too_slow(arguments) from None
        if process.returncode not in allowed:
            raise GitFailed(arguments[0], words.decode(errors="replace"), process.returncode)
        return process.returncode, output or b""

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        command = ["git"]
        for name, value in _SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        if self.git_dir is not None:
            command += [f"--git-dir={self.git_dir}", f"--work-tree={self.work_tree or self.folder}"]
        return [*command, *arguments]

    def _environment(self) -> Mapping[str, str]:
        """Ours without what a git that started us would tell its children."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
        environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_OPTIONAL_LOCKS": "0"}
        if self.index is not None:
            environment["GIT_INDEX_FILE"] = str(self.index)
        if not self.may_fetch:
            environment["GIT_ALLOW_PROTOCOL"] = "none"
        if self.overrides:  # not by `-c`, which ends a name at its first "="
            environment["GIT_CONFIG_COUNT"] = str(len(self.overrides))
            for number, (name, value) in enumerate(self.overrides):
                environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        return environment


def _too_slow(arguments: tuple[str, ...]) -> Unavailable:
    return Unavailable(f"git {arguments[0]} did not end in the time there was.", advice="Give the delegation a longer timeout.")


def _not_started(error: OSError, folder: Path) -> Unavailable:
    if isinstance(error, FileNotFoundError) and folder.is_dir():
        return Unavailable(
            "git is not installed, and a workspace of its own needs it.",
            code="TOOL_UNAVAILABLE",
            advice='Install git, or declare the agent with workspace = "shared".',
        )
    return Unavailable(f"git could not be started in {folder}: {error.strerror or error}.", code="TOOL_UNAVAILABLE")


def _reason(words: str) -> str:
    """What git gives as its reason, before whatever else it says: advice, warnings, its usage."""
    lines = [line.strip() for line in words.strip().splitlines() if line.strip() and not line.startswith("hint:")]
    reasons = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return "; ".join((reasons or lines[:1])[-4:])[:800] or "it gave no reason"
