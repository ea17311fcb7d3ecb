"""`remit config`: the settings in force, and where each came from."""

from typing import Annotated

from typer import Option

from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import json_text, say, say_table
from remit.system.settings_files import describe

HOW = "Change a setting in remit.toml, in [tool.remit] of pyproject.toml, or as REMIT_KEY in the environment."


def config(project: Project, every: Annotated[bool, Option("--all", help="Include settings with default values.")] = False) -> Exit:
    """Print the settings that differ from their defaults, and where each came from; with --all or --json every setting."""
    listed = [{"key": key, "value": value, "source": source} for key, value, source in describe(project.settings)]
    shown = listed if every else [one for one in listed if one["source"] != "default"]
    rows = [one | {"value": one["value"] if isinstance(one["value"], str) else json_text(one["value"])} for one in shown]
    return project.answer({"root": str(project.root), "settings": listed}, lambda: _print(project, rows, every=every))


def _print(project: Project, rows: list[dict[str, str]], *, every: bool) -> None:
    if rows:
        say_table(rows, shrinking=("value", "source"))
        say()
    if not every:
        say(f"{'Every other' if rows else 'Every'} setting has its default value: `remit config --all` lists them.")
    say(f"Project: {project.root}\n{HOW}")
