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
from typing import Any

from remit.agents.definition import Kind
from remit.system.interpreter import BASIC, TOOLCHAINS, listed_environment
from remit.system.processes import kill_tree_async, process_start

# ---- known coding agents


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAgent:
    name: str
    """Name of the agent in remit.toml."""
    about: str
    program: str
    kind: Kind
    arguments: tuple[str, ...] = ()
    """Arguments that make it speak the Agent Client Protocol."""
    install: str = ""
    keys: tuple[str, ...] = ()
    """Environment variables with its login. Only their presence is checked, never their values."""
    login_files: tuple[str, ...] = ()
    """Files with its login; `$NAME/` at the beginning is that variable's folder, if set."""
    pass_environment: tuple[str, ...] = ()
    """Variables to pass, for a kind whose adapter does not know them."""
    is_tried: bool = False
    """Whether the tests run the real program. For the others the option for the protocol may have changed."""


_ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX")
_CLAUDE_FILES = ("$CLAUDE_CONFIG_DIR/.credentials.json", "~/.claude/.credentials.json")
_OPENAI = ("OPENAI_API_KEY", "CODEX_API_KEY")
_CODEX_FILES = ("$CODEX_HOME/auth.json", "~/.codex/auth.json")


def _known(name: str, about: str, kind: Kind = Kind.ACP, *, program: str = "", **more: Any) -> KnownAgent:
    return KnownAgent(name=name, about=about, program=program or name, kind=kind, is_tried=kind is not Kind.ACP, **more)


def _over_acp(name: str, about: str, keys: tuple[str, ...], login_files: tuple[str, ...], *passed: str, program: str = "") -> KnownAgent:
    """An adapter that makes another vendor's agent speak the Agent Client Protocol."""
    about = f"{about} over the Agent Client Protocol"
    return _known(name, about, program=program, keys=keys, login_files=login_files, pass_environment=passed)


_ACP_FLAG = ("--experimental-acp",)
KNOWN = (
    _known(
        "claude", "Claude Code", Kind.CLAUDE, install="npm install -g @anthropic-ai/claude-code", keys=_ANTHROPIC, login_files=_CLAUDE_FILES
    ),
    _known("codex", "Codex", Kind.CODEX, install="npm install -g @openai/codex", keys=_OPENAI, login_files=_CODEX_FILES),
    _known(
        "opencode", "OpenCode", Kind.OPENCODE, install="npm install -g opencode-ai",
        keys=("OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
        login_files=("$XDG_DATA_HOME/opencode/auth.json", "~/.local/share/opencode/auth.json", "~/.config/opencode/opencode.json"),
    ),
    _known(
        "gemini", "Gemini CLI", arguments=_ACP_FLAG, install="npm install -g @google/gemini-cli",
        login_files=("~/.gemini/oauth_creds.json",), keys=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"),
        pass_environment=("GEMINI_*", "GOOGLE_*"),
    ),
    _known(
        "qwen", "Qwen Code", arguments=_ACP_FLAG, install="npm install -g @qwen-code/qwen-code", login_files=("~/.qwen/oauth_creds.json",),
        keys=("OPENAI_API_KEY", "DASHSCOPE_API_KEY"), pass_environment=("OPENAI_*", "DASHSCOPE_*"),
    ),
    _known(
        "goose", "goose", arguments=("acp",), keys=("GOOSE_PROVIDER",), pass_environment=("GOOSE_*",),
        login_files=("$XDG_CONFIG_HOME/goose/config.yaml", "~/.config/goose/config.yaml"),
    ),
    _known(
        "auggie", "Auggie", arguments=("--acp",), install="npm install -g @augmentcode/auggie", keys=("AUGMENT_SESSION_AUTH",),
        login_files=("~/.augment/session.json",), pass_environment=("AUGMENT_*",),
    ),
    _over_acp("claude-acp", "Claude Code", _ANTHROPIC, _CLAUDE_FILES, "ANTHROPIC_*", "CLAUDE_*", program="claude-code-acp"),
    _over_acp("claude-agent-acp", "Claude", _ANTHROPIC, _CLAUDE_FILES, "ANTHROPIC_*", "CLAUDE_*"),
    _over_acp("codex-acp", "Codex", _OPENAI, _CODEX_FILES, "OPENAI_*", "CODEX_*"),
)  # fmt: skip


# ---- detection

VERSION_SECONDS = 15.0
"""Time limit for a program to print its version: JavaScript programs take seconds on a busy machine."""
AT_ONCE = 4
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
    places = [(one, shutil.which(one.program, path=given.get("PATH", os.defpath))) for one in known]
    at_once = asyncio.Semaphore(AT_ONCE)

    async def look(one: KnownAgent, path: str) -> DetectedAgent:
        async with at_once:
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
    lines = [f"[agents.{known.name}]", f'kind = "{known.kind}"']
    if known.kind is Kind.ACP:
        untried = "" if known.is_tried else f"  # not tested with remit: see {known.program} --help"
        lines.append(f"command = {json.dumps([known.program, *known.arguments])}{untried}")
    if known.pass_environment:
        lines.append(f"pass_environment = {json.dumps(list(known.pass_environment))}")
    return [
        *lines,
        f"description = {json.dumps(f'{known.about}: reads, edits and runs code.')}",
        'allow = ["read", "search", "edit", "execute"]',
        *(["delegates = true"] if can_delegate else []),
        f'workspace = "{"worktree" if is_git else "shared"}"',
        *(['contain = "auto"'] if known.kind is not Kind.ACP else []),  # directory and hosts of the others are unknown
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
