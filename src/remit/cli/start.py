"""`remit` without arguments: a short description, useful commands for this folder, and where to find help."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from remit.cli.project import find_root
from remit.cli.render import put, say
from remit.core.errors import RemitError

if TYPE_CHECKING:
    from remit.core.settings import Settings

COMMANDS_SHOWN = 6
TASK_KINDS = ("claude", "codex", "opencode", "acp", "model")
"""Kinds of agents that take a task as text."""


def print_start() -> None:
    say("remit: hand work to any agent, and get a checked answer by the deadline.\n")
    commands = [("remit doctor", "check this machine and project"), ("remit demo", "see what it promises; no key is needed")]
    try:
        root = find_root(None)
        say(f"In {root}:\n")
        commands = list(_commands(root))[:COMMANDS_SHOWN]
    except RemitError as error:  # invalid settings, for example
        say(f"! {error}\n")
    width = max(len(command) for command, _ in commands)
    for command, meaning in commands:
        put(meaning, f"  {command:<{width}}   ", label_style="bold")
    say("\nAll commands: remit --help. One command: remit help COMMAND.")


def _commands(root: Path) -> Iterator[tuple[str, str]]:
    """Useful commands, those for the present state of the project first."""
    from remit.system.settings_files import load_settings
    from remit.system.trust import load_trust

    trust = load_trust(root)
    settings = load_settings(root, trust=trust)
    has_history = (root / ".remit" / "remit.db").exists()
    if trust.left_out:
        yield "remit trust", "review what files of this project may run"
    if not (root / "remit.toml").exists():
        yield "remit init", "find agents and models; write remit.toml"
    if not has_history:
        yield "remit demo", "see what it promises; no key is needed"
    yield _delegate(settings)
    if settings.model:
        yield 'remit ask "…"', "ask the assistant about this project"
    if has_history:
        yield "remit status", "show what is running now"
        yield "remit show", "show the last delegation"
    if (root / "specs" / "TODO.md").exists():
        yield "remit board", "show the tasks"
    yield "remit agents", "list the agents that can be called here"
    yield "remit doctor", "check this machine and project"
    yield 'remit task "…"', "record a task on the board"


def _delegate(settings: "Settings") -> tuple[str, str]:
    agent = next((name for name, table in settings.agents.items() if table.get("kind") in TASK_KINDS), None)
    if agent is not None:
        return f'remit delegate {agent} "…"', "hand a task to an agent"
    return "remit delegate worker.list_files", "call an agent that needs no settings"
