"""Which coding agents are installed here, whether they start, and what to write into remit.toml to hand them work.

Each is asked for its version, several at once, bounded and in a session of its own, and killed whole. Whether a login seems to be there is
judged by variables that are set and files that exist; what they hold is read by nobody. Used by `remit agents --detect`.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remit.agents.coding.known import KNOWN, Known
from remit.agents.definition import Kind
from remit.system.processes import kill_tree_async, process_start

VERSION_SECONDS = 15.0
"""For a program to say its version: those written in JavaScript take seconds on a busy machine."""
AT_ONCE = 4
TIMEOUT_SECONDS = 1800
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[-+.\w]*)")
_QUIET = {"DISABLE_AUTOUPDATER": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "NO_COLOR": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    known: Known
    path: str
    version: str = ""
    fault: str = ""
    """Why it does not start; empty when it does."""
    login: str = ""
    """Where a login seems to be: the name of a variable or file; empty when none was seen."""

    @property
    def is_usable(self) -> bool:
        return not self.fault and bool(self.login)


async def detect(environment: Mapping[str, str] | None = None, known: Sequence[Known] = KNOWN) -> tuple[list[Found], list[Known]]:
    """Those on PATH, in the order of `known`, and those that are not there."""
    given = dict(os.environ if environment is None else environment)
    places = [(one, shutil.which(one.program, path=given.get("PATH", os.defpath))) for one in known]
    at_once = asyncio.Semaphore(AT_ONCE)

    async def look(one: Known, path: str) -> Found:
        async with at_once:
            version, fault = await _version_of(path, given)
        return Found(known=one, path=path, version=version, fault=fault, login=login_of(one, given))

    found = await asyncio.gather(*(look(one, path) for one, path in places if path is not None))
    return list(found), [one for one, path in places if path is None]


def login_of(known: Known, environment: Mapping[str, str]) -> str:
    for name in known.keys:
        if environment.get(name):
            return name
    for written in known.login_files:
        path = _place(written, environment)
        with contextlib.suppress(OSError):
            if path is not None and path.stat().st_size > 2:  # an empty object is no login
                return written
    return ""


def lines_for(found: Found, *, is_git: bool) -> list[str]:
    """What to write into remit.toml. It may read, edit and run commands: in a worktree of its own, where there is git."""
    known = found.known
    lines = [f"[agents.{known.name}]", f'kind = "{known.kind}"']
    if known.kind is Kind.ACP:
        untried = "" if known.is_tried else f"  # not tried by us: see {known.program} --help"
        lines.append(f"command = {json.dumps([known.program, *known.arguments])}{untried}")
    if known.pass_environment:
        lines.append(f"pass_environment = {json.dumps(list(known.pass_environment))}")
    return [
        *lines,
        f"description = {json.dumps(f'{known.about}: reads, edits and runs code.')}",
        'allow = ["read", "search", "edit", "execute"]',
        "delegates = true",
        f'workspace = "{"worktree" if is_git else "shared"}"',
        f"timeout = {TIMEOUT_SECONDS}",
    ]


def _place(written: str, environment: Mapping[str, str]) -> Path | None:
    head, _, rest = written.partition("/")
    base = environment.get(head[1:]) if head.startswith("$") else environment.get("HOME", "")
    return Path(base) / rest if base else None


async def _version_of(path: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Its version, or why it does not say one."""
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**_QUIET, **environment},
            start_new_session=True,
        )
    except OSError as error:
        return "", f"it cannot be started: {error.strerror or error}"
    started = process_start(process.pid)
    try:
        async with asyncio.timeout(VERSION_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        return "", f"it did not say its version within {VERSION_SECONDS:g} s"
    finally:
        if process.returncode is None:
            await kill_tree_async(process.pid, started=started, term_grace=0.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await process.wait()
    text = said.decode("utf-8", "replace").strip()
    if process.returncode != 0:
        return "", f"it ended with exit code {process.returncode}: {' '.join(text.split())[-200:]}"
    version = _VERSION.search(text)
    return (version[0] if version else text[:40]), ""
