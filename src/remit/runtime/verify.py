"""Acceptance commands: the caller's proof, run here after the agent reports completion.

Each runs with `/bin/sh -c` in a sandbox with the workspace, the toolchain and git (`AcceptanceSite`). It is killed with all its descendants
when its time is up or the delegation is cancelled; background processes are killed too. Does not decide about the return: see `Acceptance`.

Set-up commands of a new worktree (`[workspace] setup`) run in the same way, but with a network: a Makefile or script that they start may
have been written by an agent in an earlier task. `copy` and `link` add files that git does not have.
"""

import asyncio
import contextlib
import os
import resource
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remit.core.errors import ErrorInfo, Misused, Unavailable
from remit.core.protected_paths import Protection
from remit.core.settings import Settings, WorkspaceSettings
from remit.system.beneath import resolve_inside
from remit.system.files import cache_folder, state_folder
from remit.system.interpreter import BASIC, NETWORK, TOOLCHAINS, listed_environment
from remit.system.processes import MARK
from remit.system.sandbox.boxes import Box, shell_box
from remit.system.sandbox.probe import Offer, probe, required
from remit.system.sandbox.profile import (
    Profile,
    git_directories,
    private_home,
    protected_entries,
    toolchain,
    unmade_repository,
    with_git_kept,
    with_state_hidden,
)
from remit.system.sandbox.recipes import MEBIBYTE, Limits
from remit.system.sandbox.run import ProgramEnd, run_program
from remit.system.threads import off_loop

OUTPUT_TAIL_BYTES = 4000
_MESSAGE_TAIL_CHARACTERS = 400
_TERM_GRACE_SECONDS = 0.1
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one command."""

    command: str
    exit_code: int | None
    """None: it did not end by itself, or never started; `trouble` tells which."""
    output_tail: str = ""
    trouble: str = ""

    @property
    def is_met(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    checks: tuple[Check, ...]
    hidden: str = ""
    """What the commands could not access, as a sentence."""

    @property
    def is_met(self) -> bool:
        return all(check.is_met for check in self.checks)

    @property
    def error(self) -> ErrorInfo | None:
        """The error of the first failed command; None: all passed."""
        unmet = next((check for check in self.checks if not check.is_met), None)
        if unmet is None:
            return None
        ended = unmet.trouble or f"exited {unmet.exit_code}"
        tail = unmet.output_tail.strip()[-_MESSAGE_TAIL_CHARACTERS:]
        return ErrorInfo(
            type="validation",
            code="VALIDATION_FAILED",
            message=f"Acceptance command `{unmet.command}` {ended}." + (f" Its output ended: {tail}" if tail else ""),
            recoverable=True,
            recommendation=f"Make `{unmet.command}` exit 0. {self.hidden}".rstrip(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceSite:
    """Where acceptance commands run: the folder, the settings, and the author of the commands."""

    folder: Path
    """The workspace, and the commands' working directory."""
    root: Path
    """The project; its `.remit` is hidden."""
    settings: Settings
    is_asked_here: bool = False
    """Whether a person or a program of the project wrote the commands. Others never run on the host."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Variables of the delegation. Recovery finds processes of a dead run by its mark (`REMIT_MARK`)."""
    scratch: Path | None = None
    """The delegation's scratch folder, readable."""
    has_network: bool = False
    """Whether they get the host's network, to fetch packages."""

    @property
    def is_on_host(self) -> bool:
        return self.settings.accept_in == "host" and self.is_asked_here

    async def require(self) -> None:
        """Raise `Unavailable` if there is no sandbox and running without one is not allowed."""
        if not self.is_on_host:
            await off_loop(self._offer)

    def _offer(self) -> Offer:
        try:
            return required(probe())
        except Unavailable as error:
            opt_out = 'Or set accept_in = "host" to run acceptance commands without a sandbox.' if self.is_asked_here else ""
            message = f"Acceptance commands cannot be run in a sandbox here: {error.message}"
            raise Unavailable(message, code=error.code, advice=f"{error.advice} {opt_out}".rstrip()) from None

    def environment(self) -> dict[str, str]:
        """No keys and no tokens: a command may run code that an agent wrote."""
        shown = listed_environment((*BASIC, *TOOLCHAINS, *(NETWORK if self.has_network else ()), *self.settings.accept_env))
        if not self.is_on_host:  # they name paths that do not exist there
            shown = {name: value for name, value in shown.items() if name in self.settings.accept_env or not _is_place(name)}
            shown |= {"GIT_OPTIONAL_LOCKS": "0", "UV_NO_SYNC": "1"}  # git and the virtual environment are read-only
        return {**shown, **self.marks}

    def limits(self) -> Limits:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        allowed = self.settings.accept_memory_mb
        memory = machine // 2 if allowed is None else allowed * MEBIBYTE
        return Limits(
            memory_bytes=memory,
            processes=self.settings.accept_processes,
            disk_bytes=memory,
            files=1_000_000,
            open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )

    def profile(self, environ: Mapping[str, str], limits: Limits) -> Profile:
        """Blocking: checks what is installed."""
        folder, home = self.folder.resolve(strict=True), Path.home()
        readable = (*self.settings.accept_read, *self.settings.workspace.link)
        named = (Path(os.path.abspath(self.root / os.path.expanduser(path))) for path in readable)
        given = [path for path in named if path.exists()]
        tools = toolchain(folder, environ)
        state = self.root.resolve() / ".remit"
        hidden = [state] if state.is_dir() and state.is_relative_to(folder) else []
        hidden += protected_entries(home, Protection.SECRET) if home.is_relative_to(folder) else []
        scratch = [self.scratch] if self.scratch is not None and self.scratch.is_dir() and not self.scratch.is_symlink() else []
        reserved = unmade_repository(folder)
        shown = dict.fromkeys([*tools, *git_directories(folder), *protected_entries(folder, *_FIXED), *given, *scratch])
        profile = Profile(
            workspace=folder,
            home=private_home(folder),
            read_only=tuple(path for path in shown if path not in reserved),
            hidden=tuple(path for path in hidden if path not in given),
            reserved=reserved,
            network=self.has_network,
            temporary_bytes=limits.memory_bytes // 4,
        )
        return with_git_kept(with_state_hidden(profile, (state_folder(), cache_folder())))

    def describe_hidden(self) -> str:
        """What a command may have missed, and the settings that provide it."""
        if self.is_on_host:
            return "It ran without most environment variables; see accept_env."
        settings = "accept_read, accept_env and accept_in" if self.is_asked_here else "accept_read and accept_env"
        missing = "home directory" if self.has_network else "network, home directory"
        return f"It ran in the sandbox without {missing} and most environment variables; see {settings}."


_FIXED = (Protection.GIT, Protection.SETTINGS, Protection.BOARD, Protection.TOOLS)
"""Read-only in the sandbox: files that start programs on the host, and the board."""


def _is_place(name: str) -> bool:
    return name.startswith("XDG_") or name in ("TMP", "TEMP", "GOCACHE", "UV_CACHE_DIR")


async def run_acceptance(commands: Sequence[str], site: AcceptanceSite, *, seconds_left: float) -> Acceptance:
    """Run all `commands` in order, within `seconds_left` in total; a failure does not skip the others."""
    stop_at = time.monotonic() + seconds_left
    environ = site.environment()
    checks = []
    for command in commands:
        left = stop_at - time.monotonic()
        if left <= 0:
            checks.append(Check(command=command, exit_code=None, trouble="was not run: no time was left"))
        else:
            checks.append(await _run(command, site, environ, left))
    return Acceptance(checks=tuple(checks), hidden=site.describe_hidden())


async def _run(command: str, site: AcceptanceSite, environ: Mapping[str, str], seconds: float) -> Check:
    base = environ.get(MARK, "").rstrip() or "remit"
    environ = {**environ, MARK: f"{base}:accept-{secrets.token_hex(6)}"}
    async with _tail_of_pipe() as (tail, writing_end):
        try:
            if site.is_on_host:
                box = Box(argv=["/bin/sh", "-c", command], environment=environ, folder=site.folder)
                ended = await run_program(box, output=writing_end, seconds=seconds, grace_seconds=_TERM_GRACE_SECONDS)
                trouble = _trouble(ended, seconds)
            else:
                ended, trouble = await _run_confined(command, site, environ, writing_end, seconds)
        except (OSError, ValueError, Unavailable) as error:
            return Check(command=command, exit_code=None, trouble=f"could not be started: {error}")
        tail.read()
        return Check(
            command=command,
            exit_code=None if trouble else ended.exit_code,
            output_tail=tail.text(),
            trouble=trouble,
        )


async def _run_confined(
    command: str, site: AcceptanceSite, environ: Mapping[str, str], output: int, seconds: float
) -> tuple[ProgramEnd, str]:  # fmt: skip
    """How it ended and its fault: it was stopped, or created files that start programs on the host."""
    limits = site.limits()
    offer, profile, before = await off_loop(lambda: (site._offer(), site.profile(environ, limits), protected_entries(site.folder, *_FIXED)))
    async with shell_box(command, profile, offer, limits, environ) as box:
        ended = await run_program(box, output=output, seconds=seconds, limits=limits)
    made = [path.name for path in await off_loop(protected_entries, site.folder, *_FIXED) if path not in before]
    return ended, _trouble(ended, seconds, limits) or (f"created {', '.join(made)}, which can start programs on the host" if made else "")


def _trouble(ended: ProgramEnd, seconds: float, limits: Limits | None = None) -> str:
    if ended.killed_by == "memory" and limits is not None:
        return f"was stopped: it used more than {limits.memory_bytes // MEBIBYTE} MB of memory (accept_memory_mb)"
    if ended.killed_by == "processes" and limits is not None:
        return f"was stopped: it had more than {limits.processes} processes (accept_processes)"
    return f"was stopped after {seconds:.3g} s: no time was left" if ended.killed_by else ""


class _Tail:
    """The end of a pipe's content; the rest is read and dropped, so that the writer never blocks."""

    __slots__ = ("_held", "_reading_end")

    def __init__(self, reading_end: int) -> None:
        self._reading_end = reading_end
        self._held = b""

    def read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._held = (self._held + os.read(self._reading_end, _READ_BYTES))[-OUTPUT_TAIL_BYTES:]

    def text(self) -> str:
        return self._held.decode("utf-8", "replace")


@contextlib.asynccontextmanager
async def _tail_of_pipe() -> AsyncIterator[tuple[_Tail, int]]:
    # Our copy of the write end stays open: the pipe never ends, so background processes that keep it open are not waited for.
    reading_end, writing_end = os.pipe()
    os.set_blocking(reading_end, False)
    loop = asyncio.get_running_loop()
    tail = _Tail(reading_end)
    loop.add_reader(reading_end, tail.read)
    try:
        yield tail, writing_end
    finally:
        loop.remove_reader(reading_end)
        os.close(reading_end)
        os.close(writing_end)


# ---- preparing a new worktree

SETUP_SECONDS = 900.0


async def prepare_folder(folder: Path, root: Path, settings: Settings, *, seconds: float, marks: Mapping[str, str]) -> None:
    """Copy files and run set-up commands. `marks`: see `AcceptanceSite`. Raises `Unavailable` if a file is missing or a command fails."""
    await off_loop(share_files, folder, root, settings.workspace)
    error = (await run_setup(folder, root, settings, seconds=min(seconds, SETUP_SECONDS), marks=marks)).error
    if error is not None:
        raise Unavailable(
            error.message.replace("Acceptance command", "[workspace] setup:", 1),
            advice=f"Fix the command. {error.recommendation.partition('. ')[2]}",
        )


async def run_setup(folder: Path, root: Path, settings: Settings, *, seconds: float, marks: Mapping[str, str]) -> Acceptance:
    """Run the set-up commands. `marks`: see `AcceptanceSite`."""
    site = AcceptanceSite(folder=folder, root=root, settings=settings, is_asked_here=True, has_network=True, marks=marks)
    commands = settings.workspace.setup
    if commands:
        await site.require()
    return await run_acceptance(commands, site, seconds_left=seconds)


def share_files(folder: Path, root: Path, rules: WorkspaceSettings) -> None:
    """Copy and link files that git does not have. Blocking."""
    for name in rules.copy:
        source, target = _places(folder, root, name, "copy")
        if not os.path.lexists(target):
            if source.is_dir() and not source.is_symlink():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copy2(source, target, follow_symlinks=False)
    for name in rules.link:
        source, target = _places(folder, root, name, "link")
        if not os.path.lexists(target):
            target.symlink_to(source)


def _places(folder: Path, root: Path, name: str, key: str) -> tuple[Path, Path]:
    """Source and target, both inside, also if an agent has put links on the way there."""
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise Misused(f"[workspace] {key}: {name} is not a path inside the project.", advice="Name it relative to the project's root.")
    above, last = os.path.split(os.path.normpath(name))
    source, target = (resolve_inside(place, above) / last for place in (root, folder))
    if not os.path.lexists(source):
        raise Unavailable(f"[workspace] {key}: {name} does not exist in the project.", advice=f"Create it, or take it out of {key}.")
    target.parent.mkdir(parents=True, exist_ok=True)
    return source, target
