"""Helpers for tests with real coding agents: the installed agents, a project that declares them, and a scripted model server.

Each agent has a separate home folder and connects only to the scripted model server. The home folder identifies leftover processes.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from remit import Remit
from remit.testing import Call, ScriptedModels
from remit.testing.models.turns import Script
from support.programs import run
from support.tools import PROGRAMS as TOOLS

HELPERS = '''
from pathlib import Path
from remit import Context, agent

@agent("counter")
async def counter(ctx: Context, word: str) -> dict:
    """Counts the letters of a word."""
    return {"letters": len(word), "path": list(ctx.path), "depth": ctx.depth}
'''


@dataclass(frozen=True, kw_only=True)
class Coder:
    """Coding agent and its specifics."""

    name: str
    kind: str
    command: tuple[str, ...]
    shell: Callable[[str], Call]
    """Builds the tool call that runs a shell command."""
    settle: Callable[[Path, str], Mapping[str, str]]
    """Writes its settings for a model server into a home folder. Returns its environment variables."""

    def table(self, home: Path, models: ScriptedModels, **more: Any) -> dict[str, Any]:
        """Return the remit.toml table of an agent that runs on this coding agent."""
        home.mkdir(parents=True, exist_ok=True)
        program = str(TOOLS / self.command[0])
        surroundings = {"HOME": str(home), "PATH": f"{TOOLS}:{os.environ['PATH']}", **self.settle(home, models.base_url)}
        allow = ["read", "search", "edit", "execute"]
        return {"kind": self.kind, "command": [program, *self.command[1:]], "environment": surroundings, "allow": allow, **more}


def _claude(home: Path, base_url: str) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "CLAUDE_CODE_MAX_RETRIES": "1",
    }


def _codex(home: Path, base_url: str) -> Mapping[str, str]:
    folder = home / "codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(
        f"""model = "scripted"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{base_url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_ACCESS"
request_max_retries = 1
stream_max_retries = 1
"""
    )
    return {"CODEX_HOME": str(folder), "SCRIPTED_ACCESS": "scripted"}


def _opencode(home: Path, base_url: str) -> Mapping[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{base_url}/v1", "apiKey": "scripted"},
        "models": {"scripted": {"name": "scripted", "tool_call": True, "limit": {"context": 100_000, "output": 8_000}}},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["scripted"],
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "provider": {"scripted": provider},
    }
    (home / "opencode.json").write_text(json.dumps(config))
    (home / "models.json").write_text("{}")  # replaces the full model list, which takes seconds to read
    folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "DATA", "CACHE", "STATE")}
    as_if_installed(home / "config" / "opencode")
    known = {"OPENCODE_MODELS_PATH": str(home / "models.json"), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return {"OPENCODE_CONFIG": str(home / "opencode.json"), **known, **folders}


def as_if_installed(folder: Path) -> None:
    """Skip the first installation of opencode's plugin package, which needs the network and more CPU time than a test."""
    needed = {"dependencies": {"@opencode-ai/plugin": "*"}}
    (folder / "node_modules").mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps(needed))
    (folder / "package-lock.json").write_text(json.dumps({"lockfileVersion": 3, "packages": {"": needed}}))


def _bash(command: str) -> Call:
    return Call("bash", command=command, description="as scripted")


def _exec_command(command: str) -> Call:
    return Call("exec_command", cmd=command, yield_time_ms=60_000)


CLAUDE = Coder(name="claude", kind="claude", command=("claude",), shell=_bash, settle=_claude)
CODEX = Coder(name="codex", kind="codex", command=("codex",), shell=_exec_command, settle=_codex)
OPENCODE = Coder(name="opencode", kind="opencode", command=("opencode",), shell=_bash, settle=_opencode)
OPENCODE_ACP = Coder(name="opencode over ACP", kind="acp", command=("opencode", "acp"), shell=_bash, settle=_opencode)
CODERS = (CLAUDE, CODEX, OPENCODE)


def need(*coders: Coder) -> None:
    """Skip the test with a reason if a coding agent is not installed."""
    missing = sorted({coder.command[0] for coder in coders if not (TOOLS / coder.command[0]).exists()})
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed in .tools: `make tools` needs npm and a network")


@dataclass
class Harness:
    """Project with real coding agents and their scripted models."""

    project: Path
    homes: Path
    models: ScriptedModels
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def cast(self, name: str, coder: Coder, **more: Any) -> None:
        """Declare an agent on this coding agent. Agents of one tool share a home and its sessions, as for a user."""
        self.agents[name] = coder.table(self.homes / coder.kind, self.models, **more)
        self.write()

    def write(self) -> None:
        (self.project / "remit.toml").write_text(tomlkit.dumps({**self.settings, "agents": self.agents}))

    def begin_git(self) -> None:
        """Make the project a git repository with one commit."""
        (self.project / ".gitignore").write_text(".remit/\n")
        identity = ["-c", "user.name=Tester", "-c", "user.email=tester@localhost"]
        for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "Begin"]):
            subprocess.run(["git", *words], cwd=self.project, check=True, capture_output=True, timeout=20)

    def open(self) -> Remit:
        return Remit.open(self.project)

    def remit(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the CLI to its end."""
        return run(["-m", "remit.cli.main", *arguments], self.project)

    def remit_started(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "remit.cli.main", *arguments]
        return subprocess.Popen(command, cwd=self.project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)

    def left_running(self) -> list[str]:
        """Return the command lines of agent processes of this harness that still run."""
        return [line for line in map(self._started_here, Path("/proc").glob("[0-9]*")) if line]

    def _started_here(self, process: Path) -> str | None:
        try:
            surroundings = (process / "environ").read_bytes()
            line = (process / "cmdline").read_bytes()
        except OSError:
            return None
        is_ours = str(self.homes).encode() in surroundings or str(self.homes).encode() in line
        return line.replace(b"\0", b" ").decode(errors="replace")[:200] if is_ours and line else None

    async def wait_for_nobody(self, seconds: float = 15.0) -> None:
        """Wait until no process of this harness runs. Fail with the remaining command lines."""
        end = time.monotonic() + seconds
        while left := await asyncio.to_thread(self.left_running):
            assert time.monotonic() < end, f"still running: {left}"
            await asyncio.sleep(0.05)

    async def wait_for_file(self, name: str, seconds: float = 100.0) -> Path:
        path, end = self.project / name, time.monotonic() + seconds
        while not (path.exists() and path.stat().st_size):
            assert not self.models.faults
            assert time.monotonic() < end, f"{name} was not written after {len(self.models.requests)} model requests"
            await asyncio.sleep(0.05)
        return path


@asynccontextmanager
async def open_harness(folder: Path, script: Script, **settings: Any) -> AsyncIterator[Harness]:
    """Yield a harness in this folder. Processes that a failing test leaves are killed at the end."""
    project, homes = folder / "project", folder / "homes"
    (project / ".remit" / "agents").mkdir(parents=True)
    (project / ".remit" / "agents" / "helpers.py").write_text(HELPERS)
    homes.mkdir()
    async with ScriptedModels(script) as models:
        yield Harness(project, homes, models, settings=dict(settings))
    shutil.rmtree(homes, ignore_errors=True)
