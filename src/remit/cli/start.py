"""`remit` without arguments: a short description, useful commands for this folder, and where to find help."""

from pathlib import Path

from remit.cli.project import find_root
from remit.cli.render import put, say
from remit.core.errors import RemitError

COMMANDS_SHOWN = 6
TASK_KINDS = ("claude", "codex", "opencode", "acp", "model")
"""Kinds of agents that take a task as text."""


def print_start() -> None:
    say("remit: hand work to any agent, and get a checked answer by the deadline.\n")
    commands = [("remit doctor", "check this machine and project"), ("remit demo", "see what it promises; no key is needed")]
    try:
        root = find_root(None)
        say(f"In {root}:\n")
        commands = [(command, meaning) for command, meaning, is_useful in _commands(root) if is_useful][:COMMANDS_SHOWN]
    except RemitError as error:  # invalid settings, for example
        say(f"! {error}\n")
    width = max(len(command) for command, _ in commands)
    for command, meaning in commands:
        put(meaning, f"  {command:<{width}}   ", label_style="bold")
    say("\nAll commands: remit --help. One command: remit help COMMAND.")


def _commands(root: Path) -> list[tuple[str, str, bool]]:
    """Commands with their meaning, and whether they are useful in the present state of the project, which also decides the order."""
    from remit.system.settings_files import load_settings
    from remit.system.trust import load_trust

    trust = load_trust(root)
    settings = load_settings(root, trust=trust)
    has_history = (root / ".remit" / "remit.db").exists()
    agent = next((name for name, table in settings.agents.items() if table.get("kind") in TASK_KINDS), None)
    return [
        ("remit trust", "review what files of this project may run", bool(trust.left_out)),
        ("remit init", "find agents and models; write remit.toml", not (root / "remit.toml").exists()),
        ("remit demo", "see what it promises; no key is needed", not has_history),
        (f'remit delegate {agent} "…"', "hand a task to an agent", agent is not None),
        ("remit delegate worker.list_files", "call an agent that needs no settings", agent is None),
        ('remit ask "…"', "ask the assistant about this project", bool(settings.model)),
        ("remit status", "show what is running now", has_history),
        ("remit show", "show the last delegation", has_history),
        ("remit board", "show the tasks", (root / "specs" / "TODO.md").exists()),
        ("remit agents", "list the agents that can be called here", True),
        ("remit doctor", "check this machine and project", True),
        ('remit task "…"', "record a task on the board", True),
    ]
