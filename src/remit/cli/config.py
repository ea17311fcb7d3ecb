"""`remit config`: the settings in force, and where each came from."""

from typing import Annotated

from typer import Option

from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.results import say_document
from remit.system.settings_files import describe

HOW = (
    "Change a setting in remit.toml, in [tool.remit] of pyproject.toml, or as REMIT_KEY in the environment. `remit config --all` lists all."
)


def config(project: Project, every: Annotated[bool, Option("--all", help="Include settings with default values.")] = False) -> Exit:
    """Print the settings that differ from their defaults, and where each came from; with --all or --json every setting."""
    listed = [{"key": key, "value": value, "source": source} for key, value, source in describe(project.settings)]
    shown = listed if every else [one for one in listed if one["source"] != "default"]
    root = str(project.root)
    return project.answer({"root": root, "settings": listed}, lambda: say_document({"root": root, "how": HOW, "settings": shown}))
