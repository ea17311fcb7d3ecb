"""`remit config`: the settings in force, and where each came from."""

from typing import Annotated

from typer import Option

from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import console, count, cut, harmless, json_text, say, table
from remit.system.settings_files import describe

HOW = "Change a setting in remit.toml, in [tool.remit] of pyproject.toml, or as REMIT_KEY in the environment."


def config(project: Project, every: Annotated[bool, Option("--all", help="Include settings with default values.")] = False) -> Exit:
    """Print the settings that differ from their defaults, and where each came from; with --all or --json every setting."""
    settings = describe(project.settings)
    changed = [one for one in settings if one[2] != "default"]
    plain = [one for one in settings if one[2] == "default"]

    def shown() -> None:
        rows = table("key", "value", "from", shrinking=("value", "from"))
        for key, value, source in [*changed, *(plain if every else [])]:
            text = value if isinstance(value, str) else json_text(value)
            rows.add_row(key, cut(text), cut(source, "dim" if source == "default" else "green"))
        if rows.row_count:
            console().print(rows)
            say()
        if not every:
            say(f"{count(len(plain), 'setting')} {'have' if changed else 'in all, each with'} default values: `remit config --all`.")
        print(f"Project: {harmless(str(project.root))}")
        say(HOW)

    listed = [{"key": key, "value": value, "source": source} for key, value, source in settings]
    return project.answer({"root": str(project.root), "settings": listed}, shown)
