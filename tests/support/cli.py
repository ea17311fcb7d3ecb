"""Run `remit` in this process and capture its output and exit code, without starting an interpreter.

Tests of processes, signals and terminals start one instead: `start`.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from remit.cli.command_table import ALIASES as ALIASES
from remit.cli.command_table import COMMANDS, SUBCOMMANDS
from remit.cli.main import build, main
from remit.cli.project import Project

COMMAND = [sys.executable, "-m", "remit.cli.main"]


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    stdout: str
    stderr: str

    @property
    def returncode(self) -> int:
        return self.code

    def json(self) -> Any:
        """Parse stdout as one JSON document."""
        return json.loads(self.stdout)


def run(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str | None = None) -> Result:
    """Run one command line to completion. `env` replaces the environment; directory, environment and streams are restored."""
    out, err = io.StringIO(), io.StringIO()
    with _surroundings(cwd, env), tempfile.TemporaryFile("w+", encoding="utf-8") as given:
        given.write(stdin or "")
        given.seek(0)
        before = sys.stdin
        sys.stdin = given
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        finally:
            sys.stdin = before
            gc.collect(0)
    return Result(code, out.getvalue(), err.getvalue())


def run_json(*arguments: str, cwd: Path, code: int = 0, stdin: str | None = None) -> Any:
    """Return the document that `--json` prints."""
    done = run(*arguments, "--json", cwd=cwd, stdin=stdin)
    assert done.code == code, done.stdout + done.stderr
    return done.json()


def typed(command: str) -> Callable[..., int]:
    """The function of a command: takes the root and typed options, prints as the command does, and returns its exit code or raises."""
    place = COMMANDS[command].place if command in COMMANDS else SUBCOMMANDS[command]
    module, _, name = place.partition(":")
    function = getattr(importlib.import_module(f"remit.cli.{module}"), name)

    def call(root: Path, *given: Any, as_json: bool = False, **options: Any) -> int:
        return int(function(Project(root, as_json=as_json), *given, **options))

    return call


def start(*arguments: str, cwd: Path, **more: Any) -> "subprocess.Popen[str]":
    """Start the command as a separate process with its output in pipes."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*COMMAND, *arguments], cwd=cwd, text=True, **{**streams, **more})


def every_command() -> dict[str, Any]:
    """All commands with their parameters, loaded; subcommands are listed under their parent command."""
    group: Any = typer.main.get_command(build([*COMMANDS, *SUBCOMMANDS]))
    commands = {name: command for name, command in group.commands.items() if name in COMMANDS}
    for name in SUBCOMMANDS:
        commands[name.split()[0]].params += group.commands[name].params
    return commands


def run_process(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str | None = None, **more: Any) -> Result:
    """Run the command in a new interpreter, for effects that must not happen in this one."""
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, env=env, input=stdin or "", capture_output=True, text=True, timeout=100, check=False, **more
    )
    return Result(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def _surroundings(folder: Path, env: Mapping[str, str] | None) -> Iterator[None]:
    variables, here = dict(os.environ), Path.cwd()
    try:
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        os.chdir(folder)
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(variables)
