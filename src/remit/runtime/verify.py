"""Acceptance commands: the caller's own proof, run here after the agent has said that it is done.

Each runs by `/bin/sh -c` in a session of its own and is killed with everything it started when its time is up, when the
delegation is cancelled, and for what it left running in the background. Decides nothing about the return: see `Acceptance`.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remit.core.errors import ErrorInfo
from remit.system.interpreter import BASIC, TOOLCHAINS, listed_environment
from remit.system.processes import MARK, kill_tree_async, process_start

OUTPUT_TAIL_BYTES = 4000
_MESSAGE_TAIL_CHARACTERS = 400
_TERM_GRACE_SECONDS = 0.1
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One command and how it went."""

    command: str
    exit_code: int | None
    """None: it did not end by itself, or was never started; `trouble` says which."""
    seconds: float = 0.0
    output_tail: str = ""
    trouble: str = ""

    @property
    def is_met(self) -> bool:
        return self.exit_code == 0

    def to_dict(self) -> dict[str, object]:
        return {
            "command": self.command,
            "exit_code": self.exit_code,
            "seconds": self.seconds,
            "output_tail": self.output_tail,
            "trouble": self.trouble,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    checks: tuple[Check, ...]

    @property
    def is_met(self) -> bool:
        return all(check.is_met for check in self.checks)

    @property
    def error(self) -> ErrorInfo | None:
        """Of the first command that was not met; None: all were."""
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
            recommendation=f"Make `{unmet.command}` exit 0.",
        )


def acceptance_environment(more_names: Iterable[str] = ()) -> dict[str, str]:
    """Of an acceptance command, which may run code that an agent wrote: no keys, no tokens. `more_names`: the setting `accept_env`."""
    return listed_environment((*BASIC, *TOOLCHAINS, *more_names))


async def run_acceptance(commands: Sequence[str], *, cwd: Path, seconds_left: float, env: Mapping[str, str] | None = None) -> Acceptance:
    """All of `commands`, in turn, within `seconds_left` altogether; one that fails does not keep the others from being tried.

    With the delegation's mark in `env` (`REMIT_MARK`), recovery finds what a dead run left of them.
    """
    stop_at = time.monotonic() + seconds_left
    environ = acceptance_environment() if env is None else env
    checks = []
    for command in commands:
        left = stop_at - time.monotonic()
        if left <= 0:
            checks.append(Check(command=command, exit_code=None, trouble="was not run: no time was left"))
        else:
            checks.append(await _run(command, cwd, environ, left))
    return Acceptance(checks=tuple(checks))


async def _run(command: str, cwd: Path, environ: Mapping[str, str], seconds: float) -> Check:
    base = environ.get(MARK, "").rstrip() or "remit"
    mark = f"{base}:accept-{secrets.token_hex(6)}"
    began = time.monotonic()
    async with _tail_of_pipe() as (tail, writing_end):
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", command, cwd=cwd, env={**environ, MARK: mark}, start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL, stdout=writing_end, stderr=writing_end,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return Check(command=command, exit_code=None, trouble=f"could not be started: {error}")
        exit_code = await _wait(process, mark, seconds)
        tail.read()
        return Check(
            command=command,
            exit_code=exit_code,
            seconds=round(time.monotonic() - began, 3),
            output_tail=tail.text(),
            trouble="" if exit_code is not None else f"was stopped after {seconds:.3g} s: no time was left",
        )


async def _wait(process: asyncio.subprocess.Process, mark: str, seconds: float) -> int | None:
    """Its exit code, or None when time ran out; whichever it is, nothing of it is left afterwards."""
    started = process_start(process.pid)
    grace = 0.0
    try:
        return await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        grace = _TERM_GRACE_SECONDS
        return None
    except BaseException:
        with contextlib.suppress(ProcessLookupError):  # at once, in case we are not given the time for what follows
            os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        await kill_tree_async(process.pid, started=started, marker=mark, term_grace=grace)
        with contextlib.suppress(TimeoutError):  # so that the loop has heard of its end and leaves no zombie
            await asyncio.wait_for(process.wait(), 1.0)


class _Tail:
    """The end of what comes through a pipe; the rest is read and dropped, so that nobody has to wait for us."""

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
    # Our copy of the writing end stays open: the pipe never ends, so whoever keeps it open in the background is not waited for.
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
