"""Finds installed coding agents, checks whether they start, and builds their lines for remit.toml: `remit agents --detect`."""

import asyncio
import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remit.agents.definition import Kind
from remit.system.interpreter import BASIC, TOOLCHAINS, listed_environment
from remit.system.processes import kill_tree_async, process_start

# ---- known coding agents


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAgent:
    kind: Kind
    """Also the name of its program, and of the agent in remit.toml."""
    about: str
    install: str
    keys: tuple[str, ...]
    """Environment variables with its login. Only their presence is checked, never their values."""
    login_files: tuple[str, ...]
    """Files with its login; `$NAME/` at the beginning is that variable's folder, if set."""

    @property
    def name(self) -> str:
        return str(self.kind)


KNOWN = (
    KnownAgent(
        kind=Kind.CLAUDE, about="Claude Code", install="npm install -g @anthropic-ai/claude-code",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
        login_files=("$CLAUDE_CONFIG_DIR/.credentials.json", "~/.claude/.credentials.json"),
    ),
    KnownAgent(
        kind=Kind.CODEX, about="Codex", install="npm install -g @openai/codex", keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
        login_files=("$CODEX_HOME/auth.json", "~/.codex/auth.json"),
    ),
    KnownAgent(
        kind=Kind.OPENCODE, about="OpenCode", install="npm install -g opencode-ai",
        keys=("OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
        login_files=("$XDG_DATA_HOME/opencode/auth.json", "~/.local/share/opencode/auth.json", "~/.config/opencode/opencode.json"),
    ),
)  # fmt: skip


# ---- detection

VERSION_SECONDS = 15.0
"""Time limit for a program to print its version: JavaScript programs take seconds on a busy machine."""
TIMEOUT_SECONDS = 1800
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[-+.\w]*)")
_QUIET = {"DISABLE_AUTOUPDATER": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "NO_COLOR": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedAgent:
    known: KnownAgent
    path: str
    version: str = ""
    fault: str = ""
    """Why it does not start; empty if it does."""
    login: str = ""
    """Where a login was found: the name of a variable or file; empty if none was."""

    @property
    def is_usable(self) -> bool:
        return not self.fault and bool(self.login)


async def detect(
    environment: Mapping[str, str] | None = None, known: Sequence[KnownAgent] = KNOWN
) -> tuple[list[DetectedAgent], list[KnownAgent]]:
    """Agents on PATH, in the order of `known`, and the missing ones."""
    given = dict(os.environ if environment is None else environment)
    places = [(one, shutil.which(one.name, path=given.get("PATH", os.defpath))) for one in known]

    async def look(one: KnownAgent, path: str) -> DetectedAgent:
        version, fault = await _version_of(path, given)
        return DetectedAgent(known=one, path=path, version=version, fault=fault, login=login_of(one, given))

    found = await asyncio.gather(*(look(one, path) for one, path in places if path is not None))
    return list(found), [one for one, path in places if path is None]


def login_of(known: KnownAgent, environment: Mapping[str, str]) -> str:
    for name in known.keys:
        if environment.get(name):
            return name
    for written in known.login_files:
        path = _place(written, environment)
        with contextlib.suppress(OSError):
            if path is not None and path.stat().st_size > 2:  # an empty object is not a login
                return written
    return ""


def lines_for(found: DetectedAgent, *, is_git: bool, can_delegate: bool = True) -> list[str]:
    """The lines for remit.toml. The agent may read, edit and run commands, in a worktree of its own where there is git.

    `can_delegate`: the package that its tools to delegate need is installed; declared without it, the agent could not start.
    """
    known = found.known
    return [
        f"[agents.{known.name}]",
        f'kind = "{known.kind}"',
        f"description = {json.dumps(f'{known.about}: reads, edits and runs code.')}",
        'allow = ["read", "search", "edit", "execute"]',
        *(["delegates = true"] if can_delegate else []),
        f'workspace = "{"worktree" if is_git else "shared"}"',
        'contain = "auto"',
        f"timeout = {TIMEOUT_SECONDS}",
    ]


def _place(written: str, environment: Mapping[str, str]) -> Path | None:
    head, _, rest = written.partition("/")
    base = environment.get(head[1:]) if head.startswith("$") else environment.get("HOME", "")
    return Path(base) / rest if base else None


async def _version_of(path: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Its version, or why it prints none."""
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**listed_environment((*BASIC, *TOOLCHAINS), environment), **_QUIET},
            cwd="/",  # version managers and Bun obey files of the current folder
            start_new_session=True,
        )
    except OSError as error:
        return "", f"it cannot be started: {error.strerror or error}"
    started = process_start(process.pid)
    try:
        async with asyncio.timeout(VERSION_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        return "", f"it did not print its version within {VERSION_SECONDS:g} s"
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
